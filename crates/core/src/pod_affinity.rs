//! Required inter-pod affinity and anti-affinity, of a pod that has no node yet.
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity>

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    index::Snapshot,
    model::{Node, Pod},
    selector::Selector,
};

/// One required term. A `namespaceSelector` that selects by labels is not evaluated: the term then
/// applies to its `namespaces` only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodTerm {
    /// Whether the pods keep the pod away; otherwise one of them must be near.
    pub anti: bool,
    /// Selects pods by their labels.
    pub selector: Selector,
    /// Namespaces of the selected pods; `None`: all.
    pub namespaces: Option<Box<[Box<str>]>>,
    /// The nodes' label whose equal values are one place.
    pub topology_key: Box<str>,
}

impl PodTerm {
    fn selects(&self, pod: &Pod) -> bool {
        let namespaces = self.namespaces.as_ref();
        namespaces.is_none_or(|all| all.iter().any(|ns| **ns == *pod.namespace))
            && self.selector.matches(&pod.labels)
    }
}

/// Which of a pod's terms, or of the pods that are there, excludes a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityConflict {
    /// None of the pods that it must be near is there.
    Affinity,
    /// A pod that it must stay away from is there.
    AntiAffinity,
    /// A pod is there that must stay away from it.
    OfExistingPod,
}

/// The places that terms allow one pod. Made once for all nodes.
#[derive(Debug, Default)]
pub struct PodAffinity<'a> {
    /// Values of a topology key that the pod's own anti-affinity forbids.
    kept_from: Places<'a>,
    /// The same by the anti-affinity of other pods.
    kept_out: Places<'a>,
    /// For each affinity term: its key, and the values that have a selected pod; `None`: it allows
    /// every node with the key, because the pod is the first of those that it selects.
    near: Vec<(&'a str, Option<HashSet<&'a str>>)>,
}

type Places<'a> = HashMap<&'a str, HashSet<&'a str>>;

impl<'a> PodAffinity<'a> {
    /// Reads the terms of the pod, and the bound pods that they select.
    pub fn new(snapshot: &'a Snapshot, pod: &'a Pod) -> Self {
        let is_other = |p: &&Arc<Pod>| p.name != pod.name || p.namespace != pod.namespace;
        let place = |p: &Pod, key: &str| {
            let node = snapshot.node(p.node.as_deref()?)?;
            node.labels.get(key)
        };
        let mut places = Self::default();
        for other in snapshot.with_anti_affinity().filter(is_other) {
            let anti = other.pod_terms.iter().filter(|t| t.anti);
            for term in anti.filter(|t| t.selects(pod)) {
                if let Some(value) = place(other, &term.topology_key) {
                    let values = places.kept_out.entry(&term.topology_key).or_default();
                    values.insert(value);
                }
            }
        }
        for term in &pod.pod_terms {
            let selected = snapshot.pods().filter(is_other).filter(|p| !p.finished);
            let selected = selected.filter(|p| p.node.is_some() && term.selects(p));
            let key = &*term.topology_key;
            let mut any = false;
            let values: HashSet<&str> = selected
                .inspect(|_| any = true)
                .filter_map(|p| place(p, key))
                .collect();
            match term.anti {
                true => places.kept_from.entry(key).or_default().extend(values),
                false => {
                    let first = !any && term.selects(pod);
                    places.near.push((key, (!first).then_some(values)));
                }
            }
        }
        places
    }

    /// The first conflict of the node, if any.
    pub fn conflict(&self, node: &Node) -> Option<AffinityConflict> {
        let has = |places: &Places<'_>| {
            let mut places = places.iter();
            places.any(|(key, values)| node.labels.get(key).is_some_and(|v| values.contains(v)))
        };
        let is_near = |(key, values): &(&str, Option<HashSet<&str>>)| {
            let value = node.labels.get(key);
            value.is_some_and(|v| values.as_ref().is_none_or(|all| all.contains(v)))
        };
        match () {
            () if !self.near.iter().all(is_near) => Some(AffinityConflict::Affinity),
            () if has(&self.kept_from) => Some(AffinityConflict::AntiAffinity),
            () if has(&self.kept_out) => Some(AffinityConflict::OfExistingPod),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Index, Object};

    fn term(anti: bool, app: &str, key: &str) -> PodTerm {
        PodTerm {
            anti,
            selector: Selector {
                match_labels: vec![("app".into(), app.into())],
                match_expressions: Vec::new(),
            },
            namespaces: Some(["ns".into()].into()),
            topology_key: key.into(),
        }
    }

    fn pod(name: &str, app: &str, node: Option<&str>, terms: Vec<PodTerm>) -> Pod {
        Pod {
            namespace: "ns".into(),
            name: name.into(),
            labels: [("app", app)].into_iter().collect(),
            node: node.map(Into::into),
            pod_terms: terms.into(),
            ..Pod::default()
        }
    }

    /// The conflicts of a new pod on the nodes a1 and a2 of zone a, and b1 of zone b.
    fn conflicts(there: Vec<Pod>, new: &Pod) -> Vec<Option<AffinityConflict>> {
        let mut index = Index::default();
        let nodes = [("a1", "a"), ("a2", "a"), ("b1", "b")].map(|(name, zone)| Node {
            name: name.into(),
            labels: [("host", name), ("zone", zone)].into_iter().collect(),
            ..Node::default()
        });
        for node in nodes.clone() {
            index.apply(Object::Node(node));
        }
        for pod in there {
            index.apply(Object::Pod(pod));
        }
        let snapshot = index.snapshot();
        let places = PodAffinity::new(&snapshot, new);
        nodes.iter().map(|n| places.conflict(n)).collect()
    }

    use AffinityConflict::{Affinity, AntiAffinity, OfExistingPod};

    #[test]
    fn anti_affinity_keeps_a_pod_from_the_places_of_others() {
        let there = || vec![pod("w-0", "web", Some("a1"), Vec::new())];
        let by = |key| pod("w-1", "web", None, vec![term(true, "web", key)]);
        let away = Some(AntiAffinity);
        assert_eq!(conflicts(there(), &by("host")), [away, None, None]);
        assert_eq!(conflicts(there(), &by("zone")), [away, away, None]);
        // A node without the key is in no place.
        assert_eq!(conflicts(there(), &by("rack")), [None; 3]);
        let db = pod("w-1", "web", None, vec![term(true, "db", "host")]);
        assert_eq!(conflicts(there(), &db), [None; 3]);
    }

    #[test]
    fn anti_affinity_of_pods_that_are_there_counts_too() {
        let guard = pod("g", "guard", Some("b1"), vec![term(true, "web", "zone")]);
        let new = pod("w", "web", None, Vec::new());
        assert_eq!(
            conflicts(vec![guard.clone()], &new),
            [None, None, Some(OfExistingPod)]
        );
        let other = Pod {
            namespace: "other".into(),
            ..new.clone()
        };
        assert_eq!(conflicts(vec![guard.clone()], &other), [None; 3]);
        let finished = Pod {
            finished: true,
            ..guard
        };
        assert_eq!(conflicts(vec![finished], &new), [None; 3]);
    }

    #[test]
    fn affinity_needs_a_selected_pod_unless_the_pod_is_the_first() {
        let near = |app| pod("w", "web", None, vec![term(false, app, "zone")]);
        let db = pod("d", "db", Some("b1"), Vec::new());
        let far = Some(Affinity);
        assert_eq!(conflicts(vec![db], &near("db")), [far, far, None]);
        assert_eq!(conflicts(Vec::new(), &near("db")), [far; 3]);
        assert_eq!(conflicts(Vec::new(), &near("web")), [None; 3]);
        let first = pod("v", "web", Some("a2"), Vec::new());
        assert_eq!(conflicts(vec![first], &near("web")), [None, None, far]);
    }

    #[test]
    fn pod_that_moves_is_not_its_own_peer() {
        let mut here = pod("w-0", "web", Some("a1"), vec![term(true, "web", "host")]);
        let there = vec![here.clone()];
        here.node = None;
        assert_eq!(conflicts(there, &here), [None; 3]);
    }
}
