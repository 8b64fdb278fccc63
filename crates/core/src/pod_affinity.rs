//! Evaluates the required inter-pod affinity and anti-affinity of a pod that has no node yet.
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity>

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    index::Snapshot,
    model::{Node, Pod},
    selector::{Labels, PodTerm},
};

/// The reason why inter-pod affinity excludes a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityConflict {
    /// The node's place has no pod that the pod must be near.
    Affinity,
    /// The node's place has a pod that the pod must stay away from.
    AntiAffinity,
    /// The node's place has a pod whose anti-affinity keeps the pod away.
    OfExistingPod,
}

/// The places that affinity terms require or forbid for one pod, computed once for all nodes.
#[derive(Debug, Default)]
pub struct PodAffinity<'a> {
    /// The places that the pod's own anti-affinity forbids.
    kept_from: Places<'a>,
    /// The places that the anti-affinity of other pods forbids.
    kept_out: Places<'a>,
    /// The topology keys of the pod's affinity terms.
    near_keys: Vec<&'a str>,
    /// The places with a pod that every affinity term selects.
    near: Places<'a>,
    /// True if the pod may be the first of those that its affinity terms select.
    is_first: bool,
}

/// Values of node labels by topology key.
type Places<'a> = HashMap<&'a str, HashSet<&'a str>>;

impl<'a> PodAffinity<'a> {
    /// Collects the places from the pod's terms and from the terms of bound pods.
    pub fn new(snapshot: &'a Snapshot, pod: &'a Pod) -> Self {
        let is_other = |p: &&Arc<Pod>| p.name != pod.name || p.namespace != pod.namespace;
        let labels = |p: &Pod| snapshot.namespace_labels(&p.namespace);
        let add = |places: &mut Places<'a>, term: &'a PodTerm, other: &Pod| {
            let node = other.node.as_deref().and_then(|node| snapshot.node(node));
            if let Some(value) = node.and_then(|node| node.labels.get(&term.topology_key)) {
                places.entry(&term.topology_key).or_default().insert(value);
            }
        };
        let mut places = Self::default();
        // kube-scheduler treats an unknown namespace as one without labels.
        let unlabelled = Labels::default();
        let own_labels = labels(pod).unwrap_or(&unlabelled);
        for other in snapshot.with_anti_affinity().filter(is_other) {
            let anti = other.pod_terms.iter().filter(|t| t.anti);
            for term in anti.filter(|t| selects(t, pod, || Some(own_labels))) {
                add(&mut places.kept_out, term, other);
            }
        }
        let (away, near): (Vec<_>, Vec<_>) = pod.pod_terms.iter().partition(|t| t.anti);
        // kube-scheduler 1.36 applies a namespace selector of the pod's own terms twice: once to
        // list namespaces, and once, by mistake, to a namespace without labels
        // (mergeAffinityTermNamespacesIfNotEmpty changes a copy of the term).
        let selects = |term: &PodTerm, other: &Pod| {
            selects(term, other, || labels(other)) || selects(term, other, || Some(&unlabelled))
        };
        let is_near = |other: &Pod| near.iter().all(|t| selects(t, other));
        let bound = |p: &&Arc<Pod>| p.node.is_some() && !p.finished;
        let others = snapshot.pods().filter(is_other).filter(bound);
        for other in others.filter(|_| !pod.pod_terms.is_empty()) {
            for term in away.iter().filter(|t| selects(t, other)) {
                add(&mut places.kept_from, term, other);
            }
            if is_near(other) {
                near.iter()
                    .for_each(|term| add(&mut places.near, term, other));
            }
        }
        places.near_keys = near.iter().map(|t| &*t.topology_key).collect();
        places.is_first = places.near.is_empty() && is_near(pod);
        places
    }

    /// Returns the first conflict of the node, if any.
    pub fn conflict(&self, node: &Node) -> Option<AffinityConflict> {
        let within = |places: &Places<'_>, key: &str, value: &str| {
            places.get(key).is_some_and(|values| values.contains(value))
        };
        let has = |places: &Places<'_>| {
            let mut keys = places.keys();
            keys.any(|key| node.labels.get(key).is_some_and(|v| within(places, key, v)))
        };
        let is_near = |key: &&str| {
            let value = node.labels.get(key);
            value.is_some_and(|v| self.is_first || within(&self.near, key, v))
        };
        if !self.near_keys.iter().all(is_near) {
            Some(AffinityConflict::Affinity)
        } else if has(&self.kept_from) {
            Some(AffinityConflict::AntiAffinity)
        } else if has(&self.kept_out) {
            Some(AffinityConflict::OfExistingPod)
        } else {
            None
        }
    }
}

/// Returns whether the term selects the pod. `labels` returns the labels of the pod's
/// namespace, or `None` if the namespace is unknown.
fn selects<'l>(term: &PodTerm, pod: &Pod, labels: impl FnOnce() -> Option<&'l Labels>) -> bool {
    let mut listed = term.namespaces.iter();
    (listed.any(|ns| **ns == *pod.namespace)
        || term.namespace_selector.as_ref().is_some_and(|selector| {
            selector.is_empty() || labels().is_some_and(|l| selector.matches(l))
        }))
        && term.selector.matches(&pod.labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        index::{Index, Object},
        model::Namespace,
        selector::{Expression, Selector},
    };

    fn term(anti: bool, app: &str, key: &str) -> PodTerm {
        PodTerm {
            anti,
            selector: Selector {
                match_labels: vec![("app".into(), app.into())],
                match_expressions: Vec::new(),
            },
            namespaces: ["ns".into()].into(),
            namespace_selector: None,
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

    /// The conflicts of a new pod on the nodes a1 and a2 of zone a, b1 of zone b, and c without a
    /// zone.
    fn conflicts(there: Vec<Pod>, new: &Pod) -> [Option<AffinityConflict>; 4] {
        conflicts_with(&[], there, new)
    }

    /// The same; the namespaces, with the label `team`.
    fn conflicts_with(
        namespaces: &[(&str, &str)],
        there: Vec<Pod>,
        new: &Pod,
    ) -> [Option<AffinityConflict>; 4] {
        let mut index = Index::default();
        for (name, team) in namespaces {
            index.apply(Object::Namespace(Namespace {
                name: (*name).into(),
                labels: [("team", team)].into_iter().collect(),
            }));
        }
        let zones = [
            ("a1", Some("a")),
            ("a2", Some("a")),
            ("b1", Some("b")),
            ("c", None),
        ];
        let nodes = zones.map(|(name, zone)| {
            let zone = zone.map(|z| ("zone", z));
            Node {
                name: name.into(),
                labels: [("host", name)].into_iter().chain(zone).collect(),
                ..Node::default()
            }
        });
        for node in nodes.clone() {
            index.apply(Object::Node(node));
        }
        for pod in there {
            index.apply(Object::Pod(pod));
        }
        let snapshot = index.snapshot();
        let places = PodAffinity::new(&snapshot, new);
        nodes.each_ref().map(|n| places.conflict(n))
    }

    use AffinityConflict::{Affinity, AntiAffinity, OfExistingPod};

    #[test]
    fn anti_affinity_keeps_a_pod_from_the_places_of_others() {
        let there = || vec![pod("w-0", "web", Some("a1"), Vec::new())];
        let by = |key| pod("w-1", "web", None, vec![term(true, "web", key)]);
        let away = Some(AntiAffinity);
        assert_eq!(conflicts(there(), &by("host")), [away, None, None, None]);
        // A node without the key is in no place.
        assert_eq!(conflicts(there(), &by("zone")), [away, away, None, None]);
        assert_eq!(conflicts(there(), &by("rack")), [None; 4]);
        let db = pod("w-1", "web", None, vec![term(true, "db", "host")]);
        assert_eq!(conflicts(there(), &db), [None; 4]);
    }

    #[test]
    fn anti_affinity_of_pods_that_are_there_counts_too() {
        let guard = pod("g", "guard", Some("b1"), vec![term(true, "web", "zone")]);
        let new = pod("w", "web", None, Vec::new());
        assert_eq!(
            conflicts(vec![guard.clone()], &new),
            [None, None, Some(OfExistingPod), None]
        );
        let other = Pod {
            namespace: "other".into(),
            ..new.clone()
        };
        assert_eq!(conflicts(vec![guard.clone()], &other), [None; 4]);
        let finished = Pod {
            finished: true,
            ..guard
        };
        assert_eq!(conflicts(vec![finished], &new), [None; 4]);
    }

    #[test]
    fn affinity_needs_a_selected_pod_unless_the_pod_is_the_first() {
        let near = |app| pod("w", "web", None, vec![term(false, app, "zone")]);
        let db = pod("d", "db", Some("b1"), Vec::new());
        let far = Some(Affinity);
        assert_eq!(conflicts(vec![db], &near("db")), [far, far, None, far]);
        assert_eq!(conflicts(Vec::new(), &near("db")), [far; 4]);
        assert_eq!(conflicts(Vec::new(), &near("web")), [None, None, None, far]);
        let first = pod("v", "web", Some("a2"), Vec::new());
        assert_eq!(conflicts(vec![first], &near("web")), [None, None, far, far]);
    }

    #[test]
    fn pod_that_moves_is_not_its_own_peer() {
        let mut here = pod("w-0", "web", Some("a1"), vec![term(true, "web", "host")]);
        let there = vec![here.clone()];
        here.node = None;
        assert_eq!(conflicts(there, &here), [None; 4]);
    }

    #[test]
    fn pod_far_from_every_place_leaves_the_first_place_open() {
        let new = pod("w-1", "web", None, vec![term(false, "web", "zone")]);
        let far = Some(Affinity);
        // On a node without the key, and on one that does not exist.
        for node in ["c", "gone"] {
            let there = vec![pod("w-0", "web", Some(node), Vec::new())];
            assert_eq!(conflicts(there, &new), [None, None, None, far], "{node}");
        }
    }

    #[test]
    fn affinity_needs_one_pod_that_all_terms_select() {
        let cache = || pod("c", "cache", Some("a1"), Vec::new());
        let db = || pod("d", "db", Some("a1"), Vec::new());
        let both = vec![term(false, "cache", "host"), term(false, "db", "host")];
        let far = Some(Affinity);
        let new = pod("w", "web", None, both);
        assert_eq!(conflicts(vec![cache(), db()], &new), [far; 4]);
        // Each term by its own key: near in the zone, and on a node with a rack.
        let twice = vec![term(false, "db", "zone"), term(false, "db", "host")];
        let new = pod("w", "web", None, twice);
        assert_eq!(conflicts(vec![db()], &new), [None, far, far, far]);
        // The pod must be selected by all of its own terms to be the first.
        let mixed = vec![term(false, "web", "host"), term(false, "db", "host")];
        assert_eq!(
            conflicts(Vec::new(), &pod("w", "web", None, mixed)),
            [far; 4]
        );
        let one = vec![PodTerm::unsatisfiable(), term(false, "db", "host")];
        assert_eq!(conflicts(vec![db()], &pod("w", "web", None, one)), [far; 4]);
    }

    #[test]
    fn namespace_selector_selects_by_labels() {
        let by = |anti, selector: Selector| PodTerm {
            namespaces: [].into(),
            namespace_selector: Some(selector),
            ..term(anti, "db", "host")
        };
        let team_a = || Selector {
            match_labels: vec![("team".into(), "a".into())],
            match_expressions: Vec::new(),
        };
        let not_b = || Selector {
            match_labels: Vec::new(),
            match_expressions: vec![Expression::new("team", "NotIn", vec!["b".into()]).unwrap()],
        };
        let there = || vec![pod("d", "db", Some("a1"), Vec::new())];
        let new = |term| Pod {
            namespace: "shop".into(),
            ..pod("w", "web", None, vec![term])
        };
        let (away, far) = (Some(AntiAffinity), Some(Affinity));
        let of_team = [("ns", "a"), ("shop", "b")];
        for (selector, namespaces, selects) in [
            (team_a(), &of_team[..], true),
            (not_b(), &of_team, true),
            (team_a(), &[("ns", "b")], false),
            // A selector that a namespace without labels matches selects all.
            (not_b(), &[("ns", "b")], true),
            (not_b(), &[], true),
            (team_a(), &[], false),
            (Selector::default(), &[], true),
        ] {
            let near = conflicts_with(namespaces, there(), &new(by(false, selector.clone())));
            let kept = conflicts_with(namespaces, there(), &new(by(true, selector.clone())));
            let want = match selects {
                true => ([None, far, far, far], [away, None, None, None]),
                false => ([far; 4], [None; 4]),
            };
            assert_eq!((near, kept), want, "{selector:?} {namespaces:?}");
        }
        // Of a pod that is there: by the labels of the new pod's namespace, none if it is unknown.
        let db = pod("d", "db", None, Vec::new());
        for (selector, namespaces, selects) in [
            (team_a(), &of_team[..], true),
            (team_a(), &[], false),
            (not_b(), &[], true),
            (not_b(), &[("ns", "b")], false),
        ] {
            let guard = pod("g", "guard", Some("b1"), vec![by(true, selector.clone())]);
            let out = selects.then_some(OfExistingPod);
            let got = conflicts_with(namespaces, vec![guard], &db);
            assert_eq!(got, [None, None, out, None], "{selector:?} {namespaces:?}");
        }
    }
}
