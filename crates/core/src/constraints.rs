//! The constraints on a pod's node: the offers that govern the pod, their rules, and its peers.

use std::sync::Arc;

use hashbrown::HashSet;

use crate::{
    index::{Member, Snapshot},
    model::{Offer, Pod, Rule, Target, TargetKind},
    reference::Reference,
    selector::Labels,
};

/// The identity of a pod and the labels that offers select.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodIdentity {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its labels.
    pub labels: Labels,
}

/// The constraints of one offer on a pod's node.
#[derive(Clone, Debug)]
pub struct PodConstraints {
    /// The offer.
    pub offer: Arc<Offer>,
    /// Rules of the offer's policies; of several with one name the first.
    pub rules: Vec<Rule>,
    /// Policies that the offer names and that do not exist.
    pub missing_policies: Vec<Arc<str>>,
    /// Objects of the other targets, sorted by role and name.
    pub peers: Vec<Peer>,
}

/// An object that another target of the offer selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// The name of its target.
    pub role: Arc<str>,
    /// The object.
    pub reference: Reference,
    /// The node of a pod; the name of an endpoint; `None` for other kinds.
    pub node: Option<Arc<str>>,
}

impl PodConstraints {
    /// The peers' nodes, each once, sorted.
    pub fn peer_nodes(&self) -> Vec<&str> {
        let mut nodes: Vec<&str> = self
            .peers
            .iter()
            .filter_map(|p| p.node.as_deref())
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Whether the pod in question would be a peer of `of` once it has a node.
    pub fn admits_peer(&self, of: &PodIdentity, pod: &Pod) -> bool {
        let selects = |t: &Target| t.kind == TargetKind::Pod && t.selector.matches(&pod.labels);
        let mut targets = self.offer.targets.iter().enumerate();
        *pod.namespace == *self.offer.namespace
            && *pod.name != of.name
            && targets.any(|(i, target)| {
                selects(target) && governing_targets(&self.offer, of).any(|role| role != i)
            })
    }
}

/// Whether any offer governs the pod. Cheap for ungoverned pods.
pub fn is_governed(snapshot: &Snapshot, pod: &PodIdentity) -> bool {
    snapshot
        .candidate_offers(&pod.namespace, &pod.labels)
        .any(|e| governs(&e.offer, pod))
}

/// Whether this offer governs the pod.
pub fn governs(offer: &Offer, pod: &PodIdentity) -> bool {
    *offer.namespace == *pod.namespace && governing_targets(offer, pod).next().is_some()
}

/// The constraints of every offer that governs the pod, sorted by offer name.
pub fn pod_constraints(snapshot: &Snapshot, pod: &PodIdentity) -> Vec<PodConstraints> {
    let mut all = Vec::new();
    for entry in snapshot.candidate_offers(&pod.namespace, &pod.labels) {
        let roles: Vec<usize> = governing_targets(&entry.offer, pod).collect();
        if roles.is_empty() {
            continue;
        }
        let (rules, missing_policies) = offer_rules(snapshot, &entry.offer);
        let mut peers = Vec::new();
        for (i, (target, members)) in entry.offer.targets.iter().zip(&entry.members).enumerate() {
            // A pod in two roles has peers in both.
            if roles.iter().all(|role| *role == i) {
                continue;
            }
            for member in members.values() {
                peers.extend(peer(&target.name, member, pod));
            }
        }
        peers.sort_unstable();
        all.push(PodConstraints {
            offer: Arc::clone(&entry.offer),
            rules,
            missing_policies,
            peers,
        });
    }
    all
}

fn governing_targets<'a>(
    offer: &'a Offer,
    pod: &'a PodIdentity,
) -> impl Iterator<Item = usize> + 'a {
    let selects = |t: &Target| t.kind == TargetKind::Pod && t.selector.matches(&pod.labels);
    offer
        .targets
        .iter()
        .enumerate()
        .filter(move |(_, t)| selects(t))
        .map(|(i, _)| i)
}

/// The rules of an offer (of several with one name the first), and its missing policies.
pub fn offer_rules(snapshot: &Snapshot, offer: &Offer) -> (Vec<Rule>, Vec<Arc<str>>) {
    let (mut rules, mut missing, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for name in &offer.policies {
        match snapshot.policy(&offer.namespace, name) {
            None => missing.push(Arc::clone(name)),
            Some(policy) => {
                for rule in &policy.rules {
                    if seen.insert(Arc::clone(&rule.name)) {
                        rules.push(rule.clone());
                    }
                }
            }
        }
    }
    (rules, missing)
}

fn peer(role: &Arc<str>, member: &Member, of: &PodIdentity) -> Option<Peer> {
    match member {
        Member::Pod(pod) => {
            if pod.finished || *pod.name == of.name {
                return None;
            }
            // A waiting pod has no node, and not every process watches waiting pods.
            let node = pod.node.clone()?;
            Some(Peer {
                role: Arc::clone(role),
                reference: member.reference(&of.namespace),
                node: Some(node),
            })
        }
        Member::Endpoint(name) => Some(Peer {
            role: Arc::clone(role),
            reference: member.reference(&of.namespace),
            node: Some(Arc::clone(name)),
        }),
        Member::Object(_) => Some(Peer {
            role: Arc::clone(role),
            reference: member.reference(&of.namespace),
            node: None,
        }),
    }
}
