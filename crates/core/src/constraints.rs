//! The constraints on a pod's node: the offers that govern the pod, their rules, and its peers.

use std::sync::Arc;

use hashbrown::HashSet;

use crate::{
    group::GroupName,
    index::{Member, Snapshot},
    model::{GroupRule, Offer, Pod, Rule, Target, TargetKind},
    reference::Reference,
    selector::Labels,
};

/// A pod's identity, and the labels by which offers select it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodIdentity {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's UID.
    pub uid: String,
    /// The pod's labels.
    pub labels: Labels,
    /// A hash of the UID of the pod's controlling owner; 0 if it has no such owner.
    pub owner: u64,
}

impl From<&Pod> for PodIdentity {
    fn from(pod: &Pod) -> Self {
        Self {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
            labels: pod.labels.clone(),
            owner: pod.owner,
        }
    }
}

/// The constraints of one offer on a pod's node.
#[derive(Clone, Debug)]
pub struct PodConstraints {
    /// The offer.
    pub offer: Arc<Offer>,
    /// The rules of the offer's policies; if several share a name, only the first counts.
    pub rules: Vec<Rule>,
    /// The names of policies that the offer lists and that do not exist.
    pub missing_policies: Vec<Arc<str>>,
    /// The objects that the offer's other targets select, sorted by role and reference.
    pub peers: Vec<Peer>,
}

/// An object that another target of the offer selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// The name of the target that selects the object.
    pub role: Arc<str>,
    /// The object's reference.
    pub reference: Reference,
    /// The node of a pod or the place of an endpoint; `None` for other kinds.
    pub node: Option<Arc<str>>,
}

impl PodConstraints {
    /// Returns the peers' nodes, sorted and without duplicates.
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

    /// Returns whether `pod` would be a peer of `of` once it has a node.
    pub fn admits_peer(&self, of: &PodIdentity, pod: &Pod) -> bool {
        self.roles_towards(of, pod).next().is_some()
    }

    /// Returns the peers that `pod` would be to `of` on the node, one for each role.
    pub fn peers_on(&self, of: &PodIdentity, pod: &Pod, node: &Arc<str>) -> Vec<Peer> {
        let roles = self.roles_towards(of, pod);
        let peer = |target: &Target| Peer {
            role: Arc::clone(&target.name),
            reference: Reference::pod(&pod.namespace, &pod.name),
            node: Some(Arc::clone(node)),
        };
        roles.map(peer).collect()
    }

    /// Returns the targets by which `pod` would be a peer of `of`.
    fn roles_towards<'a>(
        &'a self,
        of: &'a PodIdentity,
        pod: &'a Pod,
    ) -> impl Iterator<Item = &'a Target> {
        let selects = |t: &Target| t.kind == TargetKind::Pod && t.selector.matches(&pod.labels);
        let is_other = *pod.namespace == *self.offer.namespace && *pod.name != of.name;
        let targets = self.offer.targets.iter().enumerate();
        targets
            .filter(move |(i, target)| {
                is_other
                    && selects(target)
                    && governing_targets(&self.offer, of).any(|role| role != *i)
                    && TargetPeers::new(&self.offer, of, *i).has_pod(pod)
            })
            .map(|(_, target)| target)
    }
}

/// Returns whether any offer governs the pod. The check is cheap for ungoverned pods.
pub fn is_governed(snapshot: &Snapshot, pod: &PodIdentity) -> bool {
    snapshot
        .candidate_offers(&pod.namespace, &pod.labels)
        .any(|e| governs(&e.offer, pod))
}

/// Returns the offers that govern the pod, each with the positions of the targets that select it.
pub fn roles<'a>(
    snapshot: &'a Snapshot,
    pod: &PodIdentity,
) -> impl Iterator<Item = (&'a Arc<Offer>, Vec<usize>)> {
    let candidates = snapshot.candidate_offers(&pod.namespace, &pod.labels);
    let roles = candidates.map(|e| (&e.offer, governing_targets(&e.offer, pod).collect()));
    roles.filter(|(_, roles): &(_, Vec<usize>)| !roles.is_empty())
}

/// Returns whether the offer governs the pod.
pub fn governs(offer: &Offer, pod: &PodIdentity) -> bool {
    *offer.namespace == *pod.namespace && governing_targets(offer, pod).next().is_some()
}

/// Returns the constraints of every offer that governs the pod, sorted by offer name.
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
            let related = TargetPeers::new(&entry.offer, pod, i);
            for member in members.values().filter(|member| related.has(member)) {
                push_peers(snapshot, &target.name, member, pod, &mut peers);
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

/// The objects of a target that may be a pod's peers. If an offer relates the pods of a group to each
/// other, a pod's peers of its own role are those of its group.
enum TargetPeers<'a> {
    All,
    None,
    Group(&'a GroupRule, Option<GroupName<'a>>),
}

impl<'a> TargetPeers<'a> {
    fn new(offer: &'a Offer, pod: &'a PodIdentity, target: usize) -> Self {
        let Some((rule, peers)) = offer.group.as_ref().and_then(|r| Some((r, r.peers?))) else {
            return Self::All;
        };
        let is_member = offer.targets[rule.of].selector.matches(&pod.labels);
        match target {
            _ if target == peers && is_member => {
                Self::Group(rule, GroupName::of(rule, &pod.labels, pod.owner))
            }
            _ if target == peers || (target == rule.of && is_member) => Self::None,
            _ => Self::All,
        }
    }

    fn has(&self, member: &Member) -> bool {
        match member {
            Member::Pod(pod) => self.has_pod(pod),
            _ => matches!(self, Self::All),
        }
    }

    fn has_pod(&self, pod: &Pod) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Group(rule, own) => {
                own.is_some() && *own == GroupName::of(rule, &pod.labels, pod.owner)
            }
        }
    }
}

/// Returns an offer's rules, only the first of each name, and the names of its missing policies.
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

/// Appends the peer that a member is to a pod: one for each place of an endpoint, and none of a pod
/// without a node.
fn push_peers(
    snapshot: &Snapshot,
    role: &Arc<str>,
    member: &Member,
    of: &PodIdentity,
    peers: &mut Vec<Peer>,
) {
    let peer = |node| Peer {
        role: Arc::clone(role),
        reference: member.reference(&of.namespace),
        node,
    };
    match member {
        Member::Pod(pod) if pod.finished || *pod.name == of.name => {}
        // A pending pod has no node, and not every process watches pending pods.
        Member::Pod(pod) => peers.extend(pod.node.clone().map(|node| peer(Some(node)))),
        Member::Endpoint(name) => {
            let places = snapshot.endpoint_places(&of.namespace, name).into_iter();
            peers.extend(places.map(|place| peer(Some(place))));
        }
        Member::Object(_) => peers.push(peer(None)),
    }
}
