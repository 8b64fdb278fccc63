//! The pods of other clusters in the index: members of the offers that select them.

use std::{collections::BTreeMap, sync::Arc};

use super::{Index, Member, OfferEntry, Snapshot, put};
use crate::{
    cow_map::CowMap,
    model::{Offer, key},
    reference::Reference,
    remote::{Fault, RemotePod, RemotePods, RemoteTarget},
};

type Pods = BTreeMap<Arc<str>, Arc<RemotePod>>;

impl Index {
    pub(super) fn put_remote(&mut self, key: &str, new: Option<Arc<RemotePods>>) -> bool {
        let after = new.clone();
        let Some(before) = put(&mut self.current.remote_pods, key, new) else {
            return false;
        };
        let none = Pods::new();
        let [old, new] = [&before, &after].map(|of| of.as_ref().map_or(&none, |of| &of.pods));
        let changes = changes(old, new);
        let Some(either) = after.as_ref().or(before.as_ref()) else {
            return true;
        };
        if changes.is_empty() {
            return true;
        }
        let scope = &either.scope;
        let Some(offers) = self.current.offers.get_mut(&scope.namespace) else {
            return true;
        };
        let offers = Arc::make_mut(offers);
        let is_selected_by = |target: &RemoteTarget| target.cluster == scope.cluster;
        for at in 0..offers.list().len() {
            let mut targets = offers.list()[at].offer.remote_targets.iter();
            if !targets.any(is_selected_by) {
                continue;
            }
            let OfferEntry { offer, remote, .. } = offers.entry_mut(at);
            for (target, members) in offer.remote_targets.iter().zip(remote) {
                if is_selected_by(target) {
                    for change in &changes {
                        select(target, *change, members);
                    }
                }
            }
        }
        true
    }
}

impl Snapshot {
    /// The pods of a namespace of another cluster; `None` if this process does not read them.
    pub fn remote_pods(&self, cluster: &str, namespace: &str) -> Option<&Arc<RemotePods>> {
        self.remote_pods.get(&key(cluster, namespace))
    }

    /// Returns the pod of another cluster that a reference names.
    pub fn remote_pod(&self, of: &Reference) -> Option<&Arc<RemotePod>> {
        let pod = Some(of).filter(|r| r.kind == "Pod" && !r.cluster.is_empty())?;
        let scope = self.remote_pods(&pod.cluster, &pod.namespace)?;
        scope.pods.get(&*pod.name)
    }

    /// Returns the first cluster of the offer's targets whose pods must not be used, and the
    /// reason.
    pub fn remote_fault<'a>(&self, offer: &'a Offer) -> Option<(&'a Arc<str>, Fault)> {
        offer.remote_targets.iter().find_map(|target| {
            let pods = self.remote_pods(&target.cluster, &offer.namespace);
            let fault = pods.map_or(Some(Fault::Off), |pods| pods.fault())?;
            Some((&target.cluster, fault))
        })
    }

    pub(super) fn remote_members(&self, target: &RemoteTarget, namespace: &str) -> CowMap<Member> {
        let mut members = CowMap::default();
        let pods = self.remote_pods(&target.cluster, namespace);
        for (name, pod) in pods.into_iter().flat_map(|pods| &pods.pods) {
            select(target, (&**name, Some(pod)), &mut members);
        }
        members
    }
}

/// Returns the pods that differ, by name; `None` for a removed one. Equal pods mostly share one
/// `Arc`, and pointers are compared first.
fn changes<'a>(old: &'a Pods, new: &'a Pods) -> Vec<(&'a str, Option<&'a Arc<RemotePod>>)> {
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    let put = new
        .iter()
        .filter(|(name, pod)| old.get(*name) != Some(*pod));
    gone.map(|name| (&**name, None))
        .chain(put.map(|(name, pod)| (&**name, Some(pod))))
        .collect()
}

/// Adds a changed pod to the members of a target, or removes it if the target does not select it.
fn select(
    target: &RemoteTarget,
    (name, pod): (&str, Option<&Arc<RemotePod>>),
    members: &mut CowMap<Member>,
) {
    match pod {
        Some(pod) if target.selector.matches(&pod.labels) => {
            members.insert(name, Member::Remote(Arc::clone(pod)));
        }
        _ => _ = members.remove(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        index::{
            Kind,
            tests::{offer, pod, remote_pods},
        },
        remote::RemoteState::{self, Current, LastKnown, Unavailable},
    };

    /// The index of an offer of all pods of this cluster, and of databases of east and west.
    fn index() -> Index {
        let mut index = Index::default();
        index.apply(offer("near", &["*", "db@east", "db@west"]));
        index
    }

    /// The names of all targets and their objects.
    fn members(index: &Index) -> Vec<String> {
        let snapshot = index.snapshot();
        let mut texts = Vec::new();
        for (target, members) in snapshot.offer("ns", "near").unwrap().all_members() {
            let members = members.values();
            texts.extend(members.map(|m| format!("{target} {}", m.reference("ns"))));
        }
        texts.sort_unstable();
        texts
    }

    #[test]
    fn members_are_of_the_cluster_the_namespace_and_the_selector() {
        let mut index = index();
        let of = |scope, pods: &[(&str, &str)]| remote_pods(scope, Current, pods);
        assert!(index.apply(of(("east", "ns"), &[("db-0", "db"), ("web-0", "web")])));
        assert!(index.apply(of(("east", "other"), &[("db-1", "db")])));
        assert!(index.apply(of(("west", "ns"), &[("db-2", "db")])));
        assert!(index.apply(of(("north", "ns"), &[("db-3", "db")])));
        let selected = ["db@east east:ns:v1:Pod:db-0", "db@west west:ns:v1:Pod:db-2"];
        assert_eq!(members(&index), selected);
        assert!(!index.apply(of(("west", "ns"), &[("db-2", "db")])));
        assert!(index.apply(of(("west", "ns"), &[("db-2", "web")])));
        assert_eq!(members(&index), selected[..1]);
        assert!(index.delete(Kind::RemotePods, "east/ns"));
        assert!(!index.delete(Kind::RemotePods, "east/ns"));
        assert!(members(&index).is_empty());
        assert_eq!(index.keys(Kind::RemotePods).count(), 3);
    }

    #[test]
    fn pods_of_two_clusters_with_one_name_are_two_members() {
        let mut index = index();
        index.apply(remote_pods(("east", "ns"), Current, &[("db-0", "db")]));
        index.apply(pod("db-0", "db", None));
        let both = ["* ns:v1:Pod:db-0", "db@east east:ns:v1:Pod:db-0"];
        assert_eq!(members(&index), both);
        let snapshot = index.snapshot();
        let here = Reference::pod("ns", "db-0");
        let there = Reference {
            cluster: "east".into(),
            ..here.clone()
        };
        let found = snapshot.remote_pod(&there).unwrap();
        assert_eq!(found.reference(), there);
        assert!(snapshot.pod_of(&there).is_none());
        assert!(snapshot.remote_pod(&here).is_none());
        assert!(snapshot.pod_of(&here).is_some());
        index.delete(Kind::Pod, "ns/db-0");
        assert_eq!(members(&index), both[1..]);
    }

    #[test]
    fn state_alone_changes_no_offer() {
        let mut index = index();
        let east = |state: RemoteState| remote_pods(("east", "ns"), state, &[("db-0", "db")]);
        index.apply(east(Current));
        let before = index.snapshot();
        assert!(index.apply(east(Unavailable(Fault::Unreachable))));
        let after = index.snapshot();
        assert!(after.changed_offers(&before).is_empty());
        let [old, new] = [&before, &after].map(|s| s.offer("ns", "near").unwrap());
        assert!(std::ptr::eq(old, new), "the offer is not even copied");
        let offer = &after.offer("ns", "near").unwrap().offer;
        let fault = |snapshot: &Snapshot| {
            let found = snapshot.remote_fault(offer);
            found.map(|(cluster, fault)| (cluster.to_string(), fault))
        };
        let unreachable = Some(("east".to_owned(), Fault::Unreachable));
        assert_eq!(fault(&after), unreachable);
        assert_eq!(fault(&before), Some(("west".to_owned(), Fault::Off)));
        index.apply(remote_pods(("west", "ns"), Current, &[]));
        index.apply(east(LastKnown(Fault::Unreachable)));
        assert_eq!(fault(&index.snapshot()), None);
    }
}
