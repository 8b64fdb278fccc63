//! The constraints on a pod's node: the offers that govern the pod, their rules, and its peers.

use std::sync::Arc;

use hashbrown::HashSet;

use crate::{
    group::GroupName,
    index::{Member, Snapshot},
    model::{GroupRule, Offer, Pod, Rule, Target, TargetKind},
    reference::Reference,
    remote::Fault,
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
    /// The other cluster whose pods cannot be used, and the reason: no rule of the offer has an
    /// answer then.
    pub unavailable: Option<(Arc<str>, Fault)>,
}

/// An object that another target of the offer selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// The name of the target that selects the object.
    pub role: Arc<str>,
    /// The object's reference.
    pub reference: Reference,
    /// The node of a pod, or the place of an endpoint or of another cluster's pod; `None` for other
    /// kinds.
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
        let unavailable = snapshot.remote_fault(&entry.offer);
        let mut peers = Vec::new();
        // The positions of remote targets follow those of targets, and no pod has their roles.
        for (i, (name, members)) in entry.all_members().enumerate() {
            // A pod in two roles has peers in both.
            if roles.iter().all(|role| *role == i) {
                continue;
            }
            let related = TargetPeers::new(&entry.offer, pod, i);
            for member in members.values().filter(|member| related.has(member)) {
                push_peers(snapshot, name, member, pod, &mut peers);
            }
        }
        peers.sort_unstable();
        all.push(PodConstraints {
            offer: Arc::clone(&entry.offer),
            rules,
            missing_policies,
            peers,
            unavailable: unavailable.map(|(cluster, fault)| (Arc::clone(cluster), fault)),
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
/// without a node or place.
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
        Member::Remote(pod) => peers.extend(pod.place.clone().map(|place| peer(Some(place)))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        index::{Index, Object},
        remote::{RemotePod, RemotePods, RemoteState, RemoteTarget, Scope},
        selector::Selector,
    };

    fn labels(app: &str) -> Labels {
        [("app", app)].into_iter().collect()
    }

    fn selector(app: &str) -> Selector {
        Selector {
            match_labels: vec![("app".into(), app.to_owned())],
            ..Selector::default()
        }
    }

    fn identity(name: &str, app: &str) -> PodIdentity {
        PodIdentity {
            namespace: "shop".into(),
            name: name.into(),
            labels: labels(app),
            ..PodIdentity::default()
        }
    }

    fn local(name: &str, app: &str, node: &str) -> Object {
        Object::Pod(Pod {
            namespace: "shop".into(),
            name: name.into(),
            labels: labels(app),
            node: Some(node.into()),
            ..Pod::default()
        })
    }

    /// Pods with the label of databases, by name and place.
    fn east(state: RemoteState, pods: &[(&str, Option<&str>)]) -> Object {
        let scope = Scope {
            cluster: "east".into(),
            namespace: "shop".into(),
        };
        let pods = pods.iter().map(|(name, place)| {
            let pod = RemotePod {
                cluster: "east".into(),
                namespace: "shop".into(),
                name: (*name).into(),
                labels: labels("db"),
                place: place.map(Into::into),
                ..RemotePod::default()
            };
            (Arc::clone(&pod.name), Arc::new(pod))
        });
        let pods = pods.collect();
        Object::RemotePods(RemotePods { scope, state, pods })
    }

    /// The offer `near` of the local pods `web` and the databases of east.
    fn index(peers: Option<usize>) -> Index {
        let target = |name: &str| Target {
            name: name.into(),
            kind: TargetKind::Pod,
            api_version: String::new(),
            selector: selector("web"),
        };
        let mut index = Index::default();
        index.apply(Object::Offer(Offer {
            namespace: "shop".into(),
            name: "near".into(),
            targets: vec![target("web"), target("others")],
            remote_targets: vec![RemoteTarget {
                name: "db".into(),
                cluster: "east".into(),
                selector: selector("db"),
            }],
            group: peers.map(|_| GroupRule {
                peers,
                ..GroupRule::default()
            }),
            ..Offer::default()
        }));
        index
    }

    fn peers(index: &Index) -> Vec<String> {
        let all = pod_constraints(&index.snapshot(), &identity("web-0", "web"));
        let text = |peer: &Peer| {
            let place = peer.node.as_deref().unwrap_or("-");
            format!("{} {} {place}", peer.role, peer.reference)
        };
        all[0].peers.iter().map(text).collect()
    }

    #[test]
    fn pods_of_another_cluster_with_a_place_are_peers() {
        for group in [None, Some(1)] {
            let mut index = index(group);
            let pods = [("db-0", Some("10.0.0.1:10250")), ("db-1", None)];
            index.apply(east(RemoteState::Current, &pods));
            let db = "db east:shop:v1:Pod:db-0 10.0.0.1:10250";
            assert_eq!(peers(&index), [db]);
            // It has the name of the pod to place.
            index.apply(east(RemoteState::Current, &[("web-0", Some("h:1"))]));
            assert_eq!(peers(&index), ["db east:shop:v1:Pod:web-0 h:1"]);
        }
    }

    #[test]
    fn remote_target_selects_no_pod_of_this_cluster() {
        let mut index = index(None);
        index.apply(east(RemoteState::Current, &[]));
        index.apply(local("db-0", "db", "n1"));
        let snapshot = index.snapshot();
        let db = identity("db-0", "db");
        assert!(!is_governed(&snapshot, &db));
        assert!(pod_constraints(&snapshot, &db).is_empty());
        assert_eq!(roles(&snapshot, &db).count(), 0);
        assert!(peers(&index).is_empty());
        let web = identity("web-0", "web");
        let constraints = &pod_constraints(&snapshot, &web)[0];
        let pod = snapshot.pod("shop", "db-0").unwrap();
        assert!(!constraints.admits_peer(&web, pod));
    }

    #[test]
    fn unavailable_cluster_concerns_its_offers_only() {
        let mut index = index(None);
        index.apply(Object::Offer(Offer {
            namespace: "shop".into(),
            name: "other".into(),
            targets: vec![Target {
                name: "web".into(),
                kind: TargetKind::Pod,
                api_version: String::new(),
                selector: selector("web"),
            }],
            ..Offer::default()
        }));
        let unavailable = |index: &Index| -> BTreeMap<String, Option<(Arc<str>, Fault)>> {
            let all = pod_constraints(&index.snapshot(), &identity("web-0", "web"));
            all.into_iter()
                .map(|of| (of.offer.name.to_string(), of.unavailable))
                .collect()
        };
        let is = |index: &Index, fault: Option<Fault>| {
            let near = fault.map(|fault| ("east".into(), fault));
            let expected = [("near".to_owned(), near), ("other".to_owned(), None)];
            assert_eq!(unavailable(index), BTreeMap::from(expected));
        };
        is(&index, Some(Fault::Off));
        index.apply(east(RemoteState::Unavailable(Fault::Connecting), &[]));
        is(&index, Some(Fault::Connecting));
        index.apply(east(RemoteState::Current, &[]));
        is(&index, None);
        index.apply(east(RemoteState::LastKnown(Fault::Unreachable), &[]));
        is(&index, None);
        index.apply(east(RemoteState::Unavailable(Fault::Unreachable), &[]));
        is(&index, Some(Fault::Unreachable));
    }
}
