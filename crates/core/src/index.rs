//! The index of the cluster's objects. One writer changes it, and many readers take snapshots.

mod flight;
mod gone_pods;
mod in_flight;
mod interner;
pub mod node_indexes;
mod object;
mod offers;
mod pod_bytes;
mod remote;
mod snapshot;

use std::{collections::VecDeque, sync::Arc};

use hashbrown::{HashMap, HashSet};

use crate::{
    cow_map::CowMap,
    model::{EndpointSlice, Offer, Pod, Service, Target, TargetKind, WatchedObject, key},
};

pub use flight::{FlightChange, FlightEvent, InFlight};
use object::dynamic_key;
pub use object::{Kind, Object};
pub use offers::{Member, OfferEntry};
pub use snapshot::{RANKED_RESOURCES, Snapshot};
use snapshot::{members_of, selects_pod};

/// The index of the cluster's objects, as its writer uses it.
#[derive(Debug, Default)]
pub struct Index {
    current: Snapshot,
    interner: interner::Interner,
    gone_pods: gone_pods::GonePods,
    pod_bytes: pod_bytes::PodBytes,
    flight_events: VecDeque<FlightEvent>,
}

impl Index {
    /// Returns the current state as an immutable view.
    pub fn snapshot(&self) -> Snapshot {
        self.current.clone()
    }

    /// Returns the UIDs of the bound pods that were deleted since `mark`, at most the last 4,096,
    /// and advances `mark`. A pod that came and went between two snapshots is in neither snapshot.
    pub fn gone_pods(&self, mark: &mut u64) -> Vec<Box<str>> {
        self.gone_pods.since(mark)
    }

    /// Returns the number of [`Pod::reduced`] pods, whose constraints take too much memory.
    pub fn reduced_pods(&self) -> usize {
        self.pod_bytes.reduced()
    }

    /// Adds or replaces an object; returns whether the index changed.
    pub fn apply(&mut self, object: Object) -> bool {
        let key = object.key();
        match object {
            Object::Pod(mut new) => {
                self.take(&key, &mut new);
                let new = self.observe_flight(&key, new);
                self.put_pod(&key, Some(Arc::new(new)))
            }
            Object::Node(new) => put(&mut self.current.nodes, &key, Some(Arc::new(new))).is_some(),
            Object::Service(new) => self.put_service(&key, Some(Arc::new(new))),
            Object::EndpointSlice(new) => self.put_slice(&key, Some(Arc::new(new))),
            Object::Policy(new) => {
                put(&mut self.current.policies, &key, Some(Arc::new(new))).is_some()
            }
            Object::Offer(new) => self.put_offer(new),
            Object::Dynamic(new) => self.put_dynamic(&key, Some(Arc::new(new))),
            Object::Namespace(new) => {
                put(&mut self.current.namespaces, &key, Some(Arc::new(new))).is_some()
            }
            Object::DeviceClass(new) => {
                put(&mut self.current.device_classes, &key, Some(Arc::new(new))).is_some()
            }
            Object::PodVolumes(new) => {
                put(&mut self.current.pod_volumes, &key, Some(Arc::new(new))).is_some()
            }
            Object::Storage(new) => {
                self.current.storage = Some(new.into());
                true
            }
            Object::RemotePods(new) => self.put_remote(&key, Some(Arc::new(new))),
        }
    }

    /// Replaces the pod `read` by `new` if the index still has `read`; returns whether the index
    /// changed.
    pub fn replace(&mut self, read: &Arc<Pod>, new: Pod) -> bool {
        let now = self.current.pod(&read.namespace, &read.name);
        now.is_some_and(|now| Arc::ptr_eq(now, read)) && self.apply(Object::Pod(new))
    }

    /// Removes an object by its [`Object::key`]; returns whether it existed.
    pub fn delete(&mut self, kind: Kind, key: &str) -> bool {
        match kind {
            Kind::Pod => !self.observe_flight_deletion(key) && self.put_pod(key, None),
            Kind::Node => put(&mut self.current.nodes, key, None).is_some(),
            Kind::Service => self.put_service(key, None),
            Kind::EndpointSlice => self.put_slice(key, None),
            Kind::Policy => put(&mut self.current.policies, key, None).is_some(),
            Kind::Offer => self.delete_offer(key),
            Kind::Dynamic => self.put_dynamic(key, None),
            Kind::Namespace => put(&mut self.current.namespaces, key, None).is_some(),
            Kind::DeviceClass => put(&mut self.current.device_classes, key, None).is_some(),
            Kind::PodVolumes => put(&mut self.current.pod_volumes, key, None).is_some(),
            Kind::Storage => self.current.storage.take().is_some(),
            Kind::RemotePods => self.put_remote(key, None),
        }
    }

    /// Replaces all objects of `kind` by those of `objects`, and ignores objects of other kinds.
    /// Returns whether the index changed.
    pub fn reset(&mut self, kind: Kind, objects: impl IntoIterator<Item = Object>) -> bool {
        let mut gone: HashSet<Arc<str>> = self.keys(kind).collect();
        let mut changed = false;
        for object in objects.into_iter().filter(|o| o.kind() == kind) {
            gone.remove(&*object.key());
            changed |= self.apply(object);
        }
        for key in gone {
            changed |= self.delete(kind, &key);
        }
        changed
    }

    /// Replaces all objects of one dynamic kind; returns whether the index changed.
    pub fn reset_dynamic(
        &mut self,
        api_version: &str,
        kind: &str,
        objects: Vec<WatchedObject>,
    ) -> bool {
        let of_kind = |o: &&Arc<WatchedObject>| *o.api_version == *api_version && *o.kind == *kind;
        let all = self.current.dynamic_objects.values().filter(of_kind);
        let mut gone: HashSet<String> = all.map(|o| dynamic_key(o)).collect();
        let mut changed = false;
        for object in objects {
            gone.remove(&dynamic_key(&object));
            changed |= self.apply(Object::Dynamic(object));
        }
        for key in gone {
            changed |= self.delete(Kind::Dynamic, &key);
        }
        changed
    }

    /// Returns the keys of all objects of `kind`.
    pub fn keys(&self, kind: Kind) -> Box<dyn Iterator<Item = Arc<str>> + '_> {
        fn of<V: Clone>(map: &CowMap<V>) -> Box<dyn Iterator<Item = Arc<str>> + '_> {
            Box::new(map.keys().map(Arc::clone))
        }
        match kind {
            Kind::Pod => of(&self.current.pods),
            Kind::Node => of(&self.current.nodes),
            Kind::Service => of(&self.current.services),
            Kind::EndpointSlice => of(&self.current.slices),
            Kind::Policy => of(&self.current.policies),
            Kind::Dynamic => of(&self.current.dynamic_objects),
            Kind::Namespace => of(&self.current.namespaces),
            Kind::DeviceClass => of(&self.current.device_classes),
            Kind::PodVolumes => of(&self.current.pod_volumes),
            Kind::Storage => Box::new(self.current.storage.iter().map(|_| "".into())),
            Kind::RemotePods => of(&self.current.remote_pods),
            Kind::Offer => {
                let offers = self.current.offers();
                Box::new(offers.map(|e| key(&e.offer.namespace, &e.offer.name).into()))
            }
        }
    }

    /// Reduces a pod that is too large, and shares its values with those of other pods.
    fn take(&mut self, key: &str, new: &mut Pod) {
        let old = self.current.pods.get(key).map(Arc::as_ref);
        self.pod_bytes.fit(old, new);
        self.interner.share(new);
    }

    fn put_pod(&mut self, key: &str, new: Option<Arc<Pod>>) -> bool {
        let Some(old) = put(&mut self.current.pods, key, new.clone()) else {
            return false;
        };
        self.pod_bytes.replace(old.as_deref(), new.as_deref());
        let occupied_node = |p: &Option<Arc<Pod>>| {
            p.as_ref()
                .filter(|p| !p.finished)
                .and_then(|p| p.node.clone())
        };
        let by_node = &mut self.current.pods_by_node;
        if let (Some(node), Some(old)) = (occupied_node(&old), &old)
            && let Some(on) = by_node.get_mut(&node)
            && Arc::make_mut(on).remove(old)
        {
            by_node.remove(&node);
        }
        if let (Some(node), Some(new)) = (occupied_node(&new), &new) {
            if by_node.get(&node).is_none() {
                by_node.insert(&node, Arc::default());
            }
            if let Some(on) = by_node.get_mut(&node) {
                Arc::make_mut(on).add(new);
            }
        }
        if let Some(old) = old.as_ref().filter(|old| old.node.is_some())
            && new.as_ref().is_none_or(|new| new.uid != old.uid)
        {
            self.gone_pods.push(&old.uid);
        }
        keep(
            &mut self.current.rejected,
            key,
            new.as_ref().filter(|p| p.is_rejected()),
        );
        let has_underlay = |p: &Pod| !p.underlay.is_empty();
        keep(
            &mut self.current.with_underlay,
            key,
            new.as_ref().filter(|p| has_underlay(p)),
        );
        let keeps_out =
            |p: &Pod| p.node.is_some() && !p.finished && p.pod_terms.iter().any(|t| t.anti);
        keep(
            &mut self.current.with_anti_affinity,
            key,
            new.as_ref().filter(|p| keeps_out(p)),
        );
        let Some(either) = new.as_ref().or(old.as_ref()) else {
            return true;
        };
        let Some(offers) = self.current.offers.get(&either.namespace) else {
            return true;
        };
        // Most pods match no offer.
        let mut touched = Vec::new();
        for pod in [&old, &new].into_iter().flatten() {
            touched.extend(offers.candidates(&pod.labels).into_iter().filter(|at| {
                let mut targets = offers.list()[*at].offer.targets.iter();
                targets.any(|t| selects_pod(t, pod))
            }));
        }
        if touched.is_empty() {
            return true;
        }
        touched.sort_unstable();
        touched.dedup();
        let name = Arc::clone(&either.name);
        if let Some(offers) = self.current.offers.get_mut(&either.namespace) {
            let offers = Arc::make_mut(offers);
            for at in touched {
                let OfferEntry { offer, members, .. } = offers.entry_mut(at);
                for (target, members) in offer.targets.iter().zip(members) {
                    match &new {
                        Some(pod) if selects_pod(target, pod) => {
                            members.insert(&name, Member::Pod(Arc::clone(pod)));
                        }
                        _ if target.kind == TargetKind::Pod => {
                            members.remove(&name);
                        }
                        _ => {}
                    }
                }
            }
        }
        true
    }

    fn put_service(&mut self, key: &str, new: Option<Arc<Service>>) -> bool {
        let Some(old) = put(&mut self.current.services, key, new.clone()) else {
            return false;
        };
        let provides = |s: &Option<Arc<Service>>| s.as_ref().is_some_and(|s| !s.rules.is_empty());
        if provides(&old) || provides(&new) {
            let mut by_rule: HashMap<Box<str>, Vec<Arc<Service>>> = HashMap::new();
            for service in self.current.services.values() {
                for rule in &service.rules {
                    by_rule
                        .entry(rule.clone())
                        .or_default()
                        .push(Arc::clone(service));
                }
            }
            self.current.providers = Arc::new(by_rule);
        }
        let underlay = |s: &Option<Arc<Service>>| s.as_ref().is_some_and(|s| s.underlay);
        if underlay(&old) || underlay(&new) {
            let all = self.current.services.values().filter(|s| s.underlay);
            self.current.underlays = Arc::new(all.cloned().collect());
        }
        let both = [&old, &new].into_iter().flatten();
        if let Some(external) = both.clone().find(|s| s.external_name.is_some()) {
            self.reselect(&external.namespace, |t| t.kind == TargetKind::Endpoint);
        }
        true
    }

    fn put_slice(&mut self, slice_key: &str, new: Option<Arc<EndpointSlice>>) -> bool {
        let Some(old) = put(&mut self.current.slices, slice_key, new.clone()) else {
            return false;
        };
        if let Some(old) = &old {
            edit(
                &mut self.current.slices_by_service,
                &key(&old.namespace, &old.service),
                |list| {
                    list.retain(|s| s.name != old.name);
                },
            );
        }
        if let Some(new) = &new {
            edit(
                &mut self.current.slices_by_service,
                &key(&new.namespace, &new.service),
                |list| {
                    list.push(Arc::clone(new));
                },
            );
        }
        let Some(either) = new.or(old) else {
            return true;
        };
        // Slices are few compared to pods: reselect the namespace's Endpoint targets.
        self.reselect(&either.namespace, |t| t.kind == TargetKind::Endpoint);
        true
    }

    fn put_dynamic(&mut self, key: &str, new: Option<Arc<WatchedObject>>) -> bool {
        let Some(old) = put(&mut self.current.dynamic_objects, key, new.clone()) else {
            return false;
        };
        let Some(either) = new.or(old) else {
            return true;
        };
        let of_kind = |t: &Target| t.selected_kind() == (&*either.api_version, &*either.kind);
        // Cluster-scoped objects may be selected from every namespace.
        let touched: HashSet<Arc<str>> = self
            .current
            .offers()
            .filter(|e| either.namespace.is_empty() || e.offer.namespace == either.namespace)
            .filter(|e| e.offer.targets.iter().any(of_kind))
            .map(|e| Arc::clone(&e.offer.namespace))
            .collect();
        for namespace in touched {
            self.reselect(&namespace, of_kind);
        }
        true
    }

    fn reselect(&mut self, namespace: &str, which: impl Fn(&Target) -> bool) {
        let mut offers = self.current.offers_in(namespace).iter();
        if !offers.any(|e| e.offer.targets.iter().any(&which)) {
            return;
        }
        let before = self.current.clone();
        if let Some(offers) = self.current.offers.get_mut(namespace) {
            let offers = Arc::make_mut(offers);
            for at in 0..offers.list().len() {
                if !offers.list()[at].offer.targets.iter().any(&which) {
                    continue;
                }
                let OfferEntry { offer, members, .. } = offers.entry_mut(at);
                for (target, members) in offer.targets.iter().zip(members) {
                    if which(target) {
                        *members = members_of(target, namespace, &before, members);
                    }
                }
            }
        }
    }

    fn put_offer(&mut self, new: Offer) -> bool {
        let namespace = Arc::clone(&new.namespace);
        let known = self.current.offer(&namespace, &new.name);
        if known.is_some_and(|e| *e.offer == new) {
            return false;
        }
        let none = CowMap::default();
        let members = new
            .targets
            .iter()
            .map(|target| members_of(target, &namespace, &self.current, &none));
        let remote = new
            .remote_targets
            .iter()
            .map(|target| self.current.remote_members(target, &namespace));
        let entry = OfferEntry {
            members: members.collect(),
            remote: remote.collect(),
            offer: Arc::new(new),
        };
        if self.current.offers.get(&namespace).is_none() {
            self.current.offers.insert(&namespace, Arc::default());
        }
        if let Some(offers) = self.current.offers.get_mut(&namespace) {
            Arc::make_mut(offers).put(entry);
        }
        true
    }

    fn delete_offer(&mut self, offer_key: &str) -> bool {
        let Some((namespace, name)) = offer_key.split_once('/') else {
            return false;
        };
        if self.current.offer(namespace, name).is_none() {
            return false;
        }
        let empty = self
            .current
            .offers
            .get_mut(namespace)
            .is_some_and(|offers| {
                let offers = Arc::make_mut(offers);
                offers.remove(name);
                offers.is_empty()
            });
        if empty {
            self.current.offers.remove(namespace);
        }
        true
    }
}

/// Sets or removes a value. Returns `None` if nothing changed, else the previous value.
fn put<T: PartialEq>(
    map: &mut CowMap<Arc<T>>,
    key: &str,
    new: Option<Arc<T>>,
) -> Option<Option<Arc<T>>> {
    match new {
        Some(new) => {
            if map.get(key).is_some_and(|old| **old == *new) {
                return None;
            }
            Some(map.insert(key, new))
        }
        None => map.remove(key).map(Some),
    }
}

/// Changes the list of `key`; creates it if absent and removes it if empty.
fn edit<T: Clone>(map: &mut CowMap<Arc<Vec<T>>>, key: &str, change: impl FnOnce(&mut Vec<T>)) {
    if map.get(key).is_none() {
        map.insert(key, Arc::default());
    }
    let empty = map.get_mut(key).is_some_and(|list| {
        let list = Arc::make_mut(list);
        change(list);
        list.is_empty()
    });
    if empty {
        map.remove(key);
    }
}

fn keep<V: Clone>(map: &mut CowMap<Arc<V>>, key: &str, value: Option<&Arc<V>>) {
    match value {
        Some(value) => _ = map.insert(key, Arc::clone(value)),
        None => _ = map.remove(key),
    }
}

#[cfg(test)]
mod tests;
