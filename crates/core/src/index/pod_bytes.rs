//! Bounds the memory of the constraints, labels, annotations and requests that pods' authors set:
//! per pod, per namespace and in total. Those of ordinary size always fit.
//!
//! An empty term of a node affinity takes 2 bytes at the API server, but 72 bytes here.

use std::{collections::BTreeSet, sync::Arc};

use hashbrown::HashMap;

use crate::{
    model::{AffinityTerm, NodeConstraints, Pod, Resources, TolerationValue},
    names::CARD_RECORDS,
    pod_rules::PodRules,
    selector::{Expression, Labels, PodTerm, Selector},
};

/// The size up to which the constraints of a pod are ordinary and count against no bound.
pub(super) const ORDINARY_BYTES: usize = 4 << 10;
/// The size up to which the labels, annotations and requests of a pod are ordinary and count
/// against no bound.
const ORDINARY_LISTS_BYTES: usize = 8 << 10;
/// The maximum size of one pod's constraints, labels, annotations and requests.
pub(super) const MAX_POD_BYTES: usize = 64 << 10;
/// The maximum size of all pods of one namespace that are larger than ordinary.
const MAX_NAMESPACE_BYTES: usize = 8 << 20;
/// The maximum size of all pods that are larger than ordinary.
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// The length of the longest name that Kubernetes accepts.
const MAX_NAME_BYTES: usize = 253;
/// The maximum number of topology keys of anti-affinity in reduced constraints.
const MAX_TOPOLOGY_KEYS: usize = 16;
/// The maximum number of host ports of a reduced pod.
const MAX_HOST_PORTS: usize = 16;
/// The maximum size of each list of a reduced pod, so that all of them are ordinary.
const MAX_REDUCED_LIST_BYTES: usize = 2 << 10;
/// The size above which an annotation's value is replaced in a reduced pod.
const MAX_REDUCED_VALUE_BYTES: usize = 512;

/// The size in bytes of the pods that are larger than ordinary, and the number of reduced pods.
#[derive(Debug, Default)]
pub(super) struct PodBytes {
    by_namespace: HashMap<Arc<str>, usize>,
    all: usize,
    reduced: usize,
}

impl PodBytes {
    /// Reduces `new`, which will replace `old`, if it does not fit.
    pub(super) fn fit(&self, old: Option<&Pod>, new: &mut Pod) {
        let bytes = counted(new);
        if bytes == 0 {
            return;
        }
        let before = old.map_or(0, counted);
        let of_namespace = self.by_namespace.get(&new.namespace).copied();
        let after = |held: usize| (held + bytes).saturating_sub(before);
        if bytes > MAX_POD_BYTES
            || after(of_namespace.unwrap_or_default()) > MAX_NAMESPACE_BYTES
            || after(self.all) > MAX_TOTAL_BYTES
        {
            reduce(new);
        }
    }

    /// Counts `new`, which has replaced `old`.
    pub(super) fn replace(&mut self, old: Option<&Pod>, new: Option<&Pod>) {
        let is_reduced = |pod: Option<&Pod>| usize::from(pod.is_some_and(|pod| pod.reduced));
        self.reduced = self.reduced + is_reduced(new) - is_reduced(old);
        let (before, after) = (old.map_or(0, counted), new.map_or(0, counted));
        let Some(pod) = new.or(old).filter(|_| before != after) else {
            return;
        };
        let held = self
            .by_namespace
            .entry(Arc::clone(&pod.namespace))
            .or_default();
        *held = (*held + after).saturating_sub(before);
        if *held == 0 {
            self.by_namespace.remove(&pod.namespace);
        }
        self.all = (self.all + after).saturating_sub(before);
    }

    /// Returns the number of reduced pods.
    pub(super) fn reduced(&self) -> usize {
        self.reduced
    }
}

/// Returns the bytes that count against the bounds: 0 for an ordinary pod.
fn counted(pod: &Pod) -> usize {
    let beyond = |bytes, ordinary| if bytes > ordinary { bytes } else { 0 };
    beyond(constraint_bytes(pod), ORDINARY_BYTES) + beyond(list_bytes(pod), ORDINARY_LISTS_BYTES)
}

/// Returns the heap size in bytes of a pod's constraints.
pub(super) fn constraint_bytes(pod: &Pod) -> usize {
    let placement = pod.placement.as_ref();
    placement.map_or(0, |p| placement_bytes(p))
        + pod.rules.as_ref().map_or(0, |rules| rule_bytes(rules))
        + pod.pod_terms.iter().map(PodTerm::bytes).sum::<usize>()
}

/// Returns the heap size in bytes of a pod's labels, annotations, requests and allocations.
fn list_bytes(pod: &Pod) -> usize {
    pod.labels.bytes()
        + pod.annotations.bytes()
        + request_bytes(&pod.requests)
        + pod.underlay.iter().map(|id| text(id)).sum::<usize>()
}

fn request_bytes(requests: &Resources) -> usize {
    requests.iter().map(|(name, _)| text(name) + 8).sum()
}

fn rule_bytes(rules: &PodRules) -> usize {
    let spread = rules.spread.iter().map(|constraint| {
        let selector = constraint.selector.as_ref();
        size_of_val(constraint)
            + text(&constraint.topology_key)
            + selector.map_or(0, selector_bytes)
    });
    let ports = rules.host_ports.iter();
    let ports = ports.map(|port| size_of_val(port) + text(&port.address) + text(&port.protocol));
    spread.sum::<usize>() + ports.sum::<usize>()
}

fn placement_bytes(of: &NodeConstraints) -> usize {
    let selector = of.node_selector.iter().map(|(k, v)| text(k) + text(v));
    let affinity = of.affinity.iter().map(|term| {
        let compare = term.compare.iter().map(|(key, ..)| text(key) + 16);
        let names = term.names.iter().map(|(_, names)| 8 + texts(names));
        size_of::<AffinityTerm>()
            + expressions(&term.labels)
            + compare.sum::<usize>()
            + names.sum::<usize>()
    });
    let tolerations = of.tolerations.iter().map(|t| {
        let value = match &t.value {
            TolerationValue::Equal(value) => Some(value),
            TolerationValue::Any | TolerationValue::Below(_) | TolerationValue::Above(_) => None,
        };
        let parts = [t.key.as_ref(), value, t.effect.as_ref()];
        parts
            .iter()
            .map(|part| part.map_or(24, |p| text(p)))
            .sum::<usize>()
    });
    let boxes = of.claims.iter().chain(&of.rejected_by);
    let containers = of.containers.iter();
    let containers = containers.map(|c| size_of_val(c) + request_bytes(&c.requests));
    text(&of.scheduler)
        + of.annotations.bytes()
        + selector.sum::<usize>()
        + affinity.sum::<usize>()
        + tolerations.sum::<usize>()
        + boxes.map(|name| text(name)).sum::<usize>()
        + containers.sum::<usize>()
}

impl PodTerm {
    /// Returns the size of the term in bytes, with its texts on the heap.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + selector_bytes(&self.selector)
            + self.namespace_selector.as_ref().map_or(0, selector_bytes)
            + self.namespaces.iter().map(|name| text(name)).sum::<usize>()
            + text(&self.topology_key)
    }
}

fn selector_bytes(selector: &Selector) -> usize {
    let labels = selector.match_labels.iter();
    labels.map(|(k, v)| text(k) + text(v)).sum::<usize>() + expressions(&selector.match_expressions)
}

fn expressions(all: &[Expression]) -> usize {
    let of = |e: &Expression| size_of::<Expression>() + text(&e.key) + texts(&e.values);
    all.iter().map(of).sum()
}

fn texts(all: &[String]) -> usize {
    all.iter().map(|one| text(one)).sum()
}

/// Returns the heap size of a text in bytes, with its allocation.
pub(super) fn text(text: &str) -> usize {
    40 + text.len()
}

/// Replaces the constraints by small and stricter ones: no plan finds a node for the pod, and no
/// plan puts another pod where this pod's anti-affinity might forbid it. Only the first
/// [`MAX_TOPOLOGY_KEYS`] topology keys of the anti-affinity are kept, and [`MAX_HOST_PORTS`] ports.
fn reduce(pod: &mut Pod) {
    pod.reduced = true;
    if list_bytes(pod) > ORDINARY_LISTS_BYTES {
        reduce_lists(pod);
    }
    if let Some(rules) = &mut pod.rules {
        rules.spread = Vec::new();
        rules.host_ports.truncate(MAX_HOST_PORTS);
        rules.host_ports.shrink_to_fit();
    }
    if let Some(all) = &mut pod.placement {
        let scheduler = std::mem::take(&mut all.scheduler);
        **all = NodeConstraints {
            scheduler: Some(scheduler)
                .filter(|name| name.len() <= MAX_NAME_BYTES)
                .unwrap_or_default(),
            priority: all.priority,
            gated: all.gated,
            // An empty term matches no node.
            affinity: vec![AffinityTerm::default()],
            observed: all.observed,
            ..NodeConstraints::default()
        };
    }
    let away = pod.pod_terms.iter().filter(|term| term.anti);
    let keys: BTreeSet<&str> = away.map(|term| &*term.topology_key).collect();
    pod.pod_terms = keys
        .into_iter()
        .take(MAX_TOPOLOGY_KEYS)
        .map(|key| PodTerm {
            anti: true,
            namespace_selector: Some(Selector::default()),
            topology_key: key.into(),
            ..PodTerm::default()
        })
        .collect();
}

/// Drops the labels, so that no offer selects the pod, and cuts the other lists. Requests of
/// Kubernetes' own resources and records of cards are kept before others. A record that is replaced
/// is unreadable and claims all cards.
fn reduce_lists(pod: &mut Pod) {
    pod.labels = Labels::default();
    let is_extended = |name: &str| name.contains('/');
    let mut requests: Vec<_> = pod.requests.iter().collect();
    requests.sort_by_key(|(name, _)| is_extended(name));
    let requests = fitting(requests, |(name, _)| text(name) + 8).collect();
    let is_long = |value: &str| value.len() > MAX_REDUCED_VALUE_BYTES;
    let records = pod.annotations.iter();
    let mut records: Vec<_> = records
        .map(|(key, value)| (key, if is_long(value) { "?" } else { value }))
        .collect();
    records.sort_by_key(|(key, _)| !CARD_RECORDS.contains(key));
    let records = fitting(records, |(key, value)| text(key) + text(value)).collect();
    let underlay = fitting(pod.underlay.to_vec(), |id| text(id)).collect();
    (pod.requests, pod.annotations, pod.underlay) = (requests, records, underlay);
}

/// Returns the first items that fit into [`MAX_REDUCED_LIST_BYTES`].
fn fitting<T>(items: Vec<T>, bytes: impl Fn(&T) -> usize) -> impl Iterator<Item = T> {
    let mut all = 0;
    items.into_iter().take_while(move |item| {
        all += bytes(item);
        all <= MAX_REDUCED_LIST_BYTES
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        index::{Index, Kind, Object},
        model::Node,
        node_filter::{NodeFilter, UnschedulableReason},
        pod_affinity::AffinityConflict,
        pod_rules::HostPort,
    };

    fn pod(namespace: &str, name: &str, terms: usize) -> Pod {
        Pod {
            namespace: namespace.into(),
            name: name.into(),
            uid: name.into(),
            placement: Some(Box::new(NodeConstraints {
                scheduler: "default-scheduler".into(),
                affinity: vec![AffinityTerm::default(); terms],
                ..NodeConstraints::default()
            })),
            ..Pod::default()
        }
    }

    fn terms(index: &Index, namespace: &str, name: &str) -> usize {
        let snapshot = index.snapshot();
        let placement = &snapshot.pod(namespace, name).unwrap().placement;
        placement.as_ref().unwrap().affinity.len()
    }

    #[test]
    fn constraints_above_the_bound_of_a_pod_are_reduced() {
        let mut index = Index::default();
        index.apply(Object::Pod(pod("shop", "small", 100)));
        index.apply(Object::Pod(pod("shop", "large", 100_000)));
        assert_eq!(terms(&index, "shop", "small"), 100);
        assert_eq!(terms(&index, "shop", "large"), 1);
        assert_eq!(index.reduced_pods(), 1);
        index.apply(Object::Pod(pod("shop", "large", 3)));
        assert_eq!(
            (terms(&index, "shop", "large"), index.reduced_pods()),
            (3, 0)
        );
        index.apply(Object::Pod(pod("shop", "large", 100_000)));
        index.delete(Kind::Pod, "shop/large");
        assert_eq!(index.reduced_pods(), 0);
    }

    #[test]
    fn labels_requests_and_records_above_the_bound_are_reduced() {
        let numbered = |prefix: &'static str| (0..30_000).map(move |i| format!("{prefix}{i}"));
        let base = || pod("shop", "p", 0);
        let record = (
            "tautline.io/gpu-devices".to_owned(),
            "GPU-a:1000,".repeat(100),
        );
        let record = [
            record,
            ("tautline.io/gpu-milli".to_owned(), "500".to_owned()),
        ];
        let many = numbered("tautline.io/a").map(|key| (key, "x".to_owned()));
        let ports = HostPort {
            address: "10.0.0.1".into(),
            protocol: "TCP".into(),
            port: 1,
        };
        let cpu = [("cpu".to_owned(), 1)];
        let large = [
            Pod {
                labels: numbered("l").map(|key| (key, "x")).collect(),
                ..base()
            },
            Pod {
                requests: numbered("a.example/r")
                    .map(|name| (name, 1))
                    .chain(cpu)
                    .collect(),
                ..base()
            },
            Pod {
                annotations: record.into_iter().chain(many).collect(),
                ..base()
            },
            Pod {
                rules: Some(Box::new(PodRules {
                    spread: Vec::new(),
                    host_ports: vec![ports; 10_000],
                })),
                ..base()
            },
        ];
        for pod in large {
            let mut index = Index::default();
            assert!(counted(&pod) > MAX_POD_BYTES);
            index.apply(Object::Pod(Pod {
                node: Some("n".into()),
                ..pod.clone()
            }));
            let snapshot = index.snapshot();
            let kept = snapshot.pod("shop", "p").unwrap();
            assert!(kept.reduced);
            let bytes = constraint_bytes(kept) + list_bytes(kept);
            assert_eq!(counted(kept), 0, "{bytes}");
            assert_eq!(kept.requests.milli("cpu"), pod.requests.milli("cpu"));
            for (key, value) in CARD_RECORDS.into_iter().zip(["?", "0"]) {
                let expected = pod.annotations.get(key).map(|_| value);
                assert_eq!(kept.annotations.get(key), expected);
            }
        }
    }

    #[test]
    fn a_full_namespace_takes_nothing_from_others_or_from_ordinary_pods() {
        let mut index = Index::default();
        let each = constraint_bytes(&pod("many", "0", 800));
        assert!((ORDINARY_BYTES..MAX_POD_BYTES).contains(&each), "{each}");
        let fit = MAX_NAMESPACE_BYTES / each;
        for i in 0..fit + 50 {
            index.apply(Object::Pod(pod("many", &i.to_string(), 800)));
        }
        assert_eq!(index.reduced_pods(), 50);
        index.apply(Object::Pod(pod("shop", "a", 800)));
        index.apply(Object::Pod(pod("many", "ordinary", 20)));
        assert_eq!(terms(&index, "shop", "a"), 800);
        assert_eq!(terms(&index, "many", "ordinary"), 20);
        for i in 0..fit + 50 {
            index.delete(Kind::Pod, &format!("many/{i}"));
        }
        assert_eq!(index.reduced_pods(), 0);
        index.apply(Object::Pod(pod("many", "a", 800)));
        assert_eq!(terms(&index, "many", "a"), 800);
    }

    #[test]
    fn reduced_pods_fit_nowhere_and_keep_every_pod_away() {
        let mut index = Index::default();
        let labels = [("zone", "z")].into_iter().collect();
        let node = Node {
            name: "n1".into(),
            labels,
            allocatable: [("pods", 110_000)].into_iter().collect(),
            ..Node::default()
        };
        index.apply(Object::Node(node.clone()));
        let reason = |index: &Index, name: &str| {
            let snapshot = index.snapshot();
            let pod = snapshot.pod("shop", name).unwrap();
            NodeFilter::new(&snapshot, pod).reason(&node)
        };
        index.apply(Object::Pod(pod("shop", "large", 100_000)));
        index.apply(Object::Pod(pod("shop", "small", 0)));
        assert_eq!(reason(&index, "small"), None);
        let nowhere = Some(UnschedulableReason::NodeSelector);
        assert_eq!(reason(&index, "large"), nowhere);
        let term = PodTerm {
            anti: true,
            selector: Selector {
                match_labels: vec![("app".into(), "other".into())],
                ..Selector::default()
            },
            namespaces: ["shop".into()].into(),
            namespace_selector: None,
            topology_key: "zone".into(),
        };
        let of = |terms: usize| Pod {
            node: Some("n1".into()),
            placement: None,
            pod_terms: vec![term.clone(); terms].into(),
            ..pod("shop", "there", 0)
        };
        index.apply(Object::Pod(of(1)));
        assert_eq!(reason(&index, "small"), None);
        index.apply(Object::Pod(of(10_000)));
        let kept_out = UnschedulableReason::PodAffinity(AffinityConflict::OfExistingPod);
        assert_eq!(reason(&index, "small"), Some(kept_out));
        let snapshot = index.snapshot();
        let bytes = constraint_bytes(snapshot.pod("shop", "there").unwrap());
        assert!(bytes < ORDINARY_BYTES, "{bytes}");
    }
}
