//! What has to be asked before a pod is placed: the offers that govern it, their
//! rules, and its peers.

use std::sync::Arc;

use hashbrown::HashSet;

use crate::{
    index::{Member, Snapshot},
    model::{Offer, Rule},
    reference::Reference,
    selector::Labels,
};

/// The pod to place, as far as it matters to offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodIdentity {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub labels: Labels,
}

/// What one offer asks of a pod's node.
#[derive(Clone, Debug)]
pub struct PodConstraints {
    pub offer: Arc<Offer>,
    /// Rules of the offer's policies; the first of a name wins.
    pub rules: Vec<Rule>,
    /// Policies that the offer names and the namespace lacks.
    pub missing_policies: Vec<Arc<str>>,
    /// Objects of the other targets, by role and name.
    pub peers: Vec<Peer>,
}

/// An object on the other side of a constraint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Name of its target in the offer.
    pub role: Arc<str>,
    pub reference: Reference,
    /// Where it is: the node of a pod, or for endpoints their own name.
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
}

/// Whether any offer governs the pod: cheap, for the pods that none does.
pub fn is_governed(snapshot: &Snapshot, pod: &PodIdentity) -> bool {
    snapshot
        .candidate_offers(&pod.namespace, &pod.labels)
        .any(|e| governs(&e.offer, pod))
}

/// Whether one does.
pub fn governs(offer: &Offer, pod: &PodIdentity) -> bool {
    *offer.namespace == *pod.namespace && governing_targets(offer, pod).next().is_some()
}

/// What each offer that governs the pod asks, by offer name.
pub fn pod_constraints(snapshot: &Snapshot, pod: &PodIdentity) -> Vec<PodConstraints> {
    let mut asks = Vec::new();
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
        asks.push(PodConstraints {
            offer: Arc::clone(&entry.offer),
            rules,
            missing_policies,
            peers,
        });
    }
    asks
}

fn governing_targets<'a>(
    offer: &'a Offer,
    pod: &'a PodIdentity,
) -> impl Iterator<Item = usize> + 'a {
    let selects = |t: &crate::model::Target| {
        t.kind == crate::model::TargetKind::Pod
            && t.selector.as_ref().is_some_and(|s| s.matches(&pod.labels))
    };
    offer
        .targets
        .iter()
        .enumerate()
        .filter(move |(_, t)| selects(t))
        .map(|(i, _)| i)
}

/// The rules of an offer, the first of a name, and the policies that are missing.
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
            // One that waits says nothing of a place, and not all callers know of it.
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
