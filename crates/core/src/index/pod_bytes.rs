//! Bounds the memory of the constraints that pods' authors set: per pod, per namespace and in
//! total. Constraints of ordinary size always fit.
//!
//! An empty term of a node affinity takes 2 bytes at the API server, but 72 bytes here.

use std::{collections::BTreeSet, sync::Arc};

use hashbrown::HashMap;

use crate::{
    model::{AffinityTerm, NodeConstraints, Pod, TolerationValue},
    selector::{Expression, PodTerm, Selector},
};

/// The size up to which the constraints of a pod are ordinary and count against no bound.
pub(super) const ORDINARY_BYTES: usize = 4 << 10;
/// The maximum size of one pod's constraints.
pub(super) const MAX_POD_BYTES: usize = 64 << 10;
/// The maximum size of all constraints of one namespace that are larger than ordinary.
const MAX_NAMESPACE_BYTES: usize = 8 << 20;
/// The maximum size of all constraints that are larger than ordinary.
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// The length of the longest name that Kubernetes accepts.
const MAX_NAME_BYTES: usize = 253;
/// The maximum number of topology keys of anti-affinity in reduced constraints.
const MAX_TOPOLOGY_KEYS: usize = 16;

/// The size in bytes of larger than ordinary constraints, and the number of reduced pods.
#[derive(Debug, Default)]
pub(super) struct PodBytes {
    by_namespace: HashMap<Arc<str>, usize>,
    all: usize,
    reduced: usize,
}

impl PodBytes {
    /// Reduces the constraints of `new`, which will replace `old`, if they do not fit.
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

    /// Returns the number of pods with reduced constraints.
    pub(super) fn reduced(&self) -> usize {
        self.reduced
    }
}

/// Returns the bytes that count against the bounds: 0 for ordinary constraints.
fn counted(pod: &Pod) -> usize {
    let bytes = constraint_bytes(pod);
    if bytes > ORDINARY_BYTES { bytes } else { 0 }
}

/// Returns the heap size in bytes of a pod's constraints, without its labels and requests.
pub(super) fn constraint_bytes(pod: &Pod) -> usize {
    let placement = pod.placement.as_ref();
    placement.map_or(0, |p| placement_bytes(p))
        + pod.pod_terms.iter().map(PodTerm::bytes).sum::<usize>()
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
    text(&of.scheduler)
        + of.annotations.bytes()
        + selector.sum::<usize>()
        + affinity.sum::<usize>()
        + tolerations.sum::<usize>()
        + boxes.map(|name| text(name)).sum::<usize>()
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
/// [`MAX_TOPOLOGY_KEYS`] topology keys of the anti-affinity are kept.
fn reduce(pod: &mut Pod) {
    pod.reduced = true;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        index::{Index, Kind, Object},
        model::Node,
        node_filter::{NodeFilter, UnschedulableReason},
        pod_affinity::AffinityConflict,
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
