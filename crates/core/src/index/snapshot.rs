//! What readers hold of an index: immutable views, and what differs between two.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{members::members_of, offers::Offers};
use crate::{
    cow_map::CowMap,
    model::{EndpointSlice, Node, Offer, Pod, Policy, Service, Target, WatchedObject, key},
    reference::Reference,
    selector::Labels,
};

/// An offer with the objects that each of its targets selects.
#[derive(Clone, Debug)]
pub struct OfferEntry {
    pub offer: Arc<Offer>,
    /// For each target, in the offer's order: the selected objects by name.
    pub members: Vec<CowMap<Member>>,
}

impl OfferEntry {
    /// Whether nothing was written since `other`, or the other way round.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.offer, &other.offer)
            && self.members.len() == other.members.len()
            && self
                .members
                .iter()
                .zip(&other.members)
                .all(|(a, b)| a.diff(b).next().is_none())
    }
}

/// An object that a target selects.
#[derive(Clone, Debug, PartialEq)]
pub enum Member {
    Pod(Arc<Pod>),
    /// A Service's endpoints, by the Service's name.
    Endpoint(Arc<str>),
    Object(Arc<WatchedObject>),
}

impl Member {
    /// The member of an offer in `namespace`, as bindings and providers name it.
    pub fn reference(&self, namespace: &str) -> Reference {
        match self {
            Self::Pod(pod) => Reference::pod(&pod.namespace, &pod.name),
            Self::Endpoint(name) => Reference {
                namespace: namespace.to_owned(),
                api_version: "v1".to_owned(),
                kind: "Endpoints".to_owned(),
                name: name.to_string(),
                ..Reference::default()
            },
            Self::Object(o) => Reference {
                namespace: o.namespace.to_string(),
                api_version: o.api_version.to_string(),
                kind: o.kind.to_string(),
                name: o.name.to_string(),
                ..Reference::default()
            },
        }
    }
}

/// An immutable view of the cluster; a clone is a few reference counts.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(super) pods: CowMap<Arc<Pod>>,
    pub(super) pods_by_node: CowMap<Arc<Vec<Arc<Pod>>>>,
    /// Pods that the scheduler found no node for, by our reason codes.
    pub(super) rejected: CowMap<Arc<Pod>>,
    /// Pods that the underlay allocated something for.
    pub(super) with_underlay: CowMap<Arc<Pod>>,
    pub(super) nodes: CowMap<Arc<Node>>,
    pub(super) services: CowMap<Arc<Service>>,
    pub(super) slices: CowMap<Arc<EndpointSlice>>,
    pub(super) slices_by_service: CowMap<Arc<Vec<Arc<EndpointSlice>>>>,
    pub(super) policies: CowMap<Arc<Policy>>,
    /// Offers by namespace, by name within one.
    pub(super) offers: CowMap<Arc<Offers>>,
    pub(super) providers: Arc<HashMap<Box<str>, Vec<Arc<Service>>>>,
    pub(super) underlays: Arc<Vec<Arc<Service>>>,
    pub(super) dynamic_objects: CowMap<Arc<WatchedObject>>,
}

impl Snapshot {
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Arc<Pod>> {
        self.pods.get(&key(namespace, name))
    }

    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values()
    }

    /// Pods bound to `node` that have not finished.
    pub fn pods_on(&self, node: &str) -> &[Arc<Pod>] {
        self.pods_by_node.get(node).map_or(&[], |v| v)
    }

    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    pub fn policy(&self, namespace: &str, name: &str) -> Option<&Arc<Policy>> {
        self.policies.get(&key(namespace, name))
    }

    pub fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.policies.values()
    }

    /// Pods that wait because of our reason codes.
    pub fn rejected(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.rejected.values()
    }

    pub fn rejected_count(&self) -> usize {
        self.rejected.len()
    }

    /// Pods with a finalizer of the underlay.
    pub fn with_underlay_allocation(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.with_underlay.values()
    }

    /// Names of nodes that differ from `earlier`, in themselves or in the pods on
    /// them; a name may come twice. Costs what was written since.
    pub fn changed_nodes<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = &'a str> {
        let nodes = changed(&self.nodes, &earlier.nodes).map(|(name, ..)| name);
        let pods = changed(&self.pods_by_node, &earlier.pods_by_node).map(|(name, ..)| name);
        nodes.chain(pods)
    }

    /// Pods that differ from `earlier`, as they were and as they are. Costs what was
    /// written since.
    pub fn changed_pods<'a>(
        &'a self,
        earlier: &'a Self,
    ) -> impl Iterator<Item = (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>)> {
        changed(&self.pods, &earlier.pods).map(|(_, old, new)| (old, new))
    }

    /// Every offer, namespace by namespace.
    pub fn offers(&self) -> impl Iterator<Item = &OfferEntry> {
        let all = self.offers.values().flat_map(|offers| offers.list());
        all.map(Arc::as_ref)
    }

    pub fn offer(&self, namespace: &str, name: &str) -> Option<&OfferEntry> {
        self.offers.get(namespace)?.get(name).map(Arc::as_ref)
    }

    /// Offers that differ from `earlier`, themselves or in what they select, as
    /// they were and as they are. Costs what was written since.
    pub fn changed_offers<'a>(
        &'a self,
        earlier: &'a Self,
    ) -> Vec<(Option<&'a OfferEntry>, Option<&'a OfferEntry>)> {
        let mut changed = Vec::new();
        for (_, old, new) in self.offers.diff(&earlier.offers) {
            let list = |offers: Option<&'a Arc<Offers>>| offers.map_or(&[][..], |o| o.list());
            let find = |offers: Option<&'a Arc<Offers>>, name: &str| offers?.get(name);
            for entry in list(new) {
                let before = find(old, &entry.offer.name);
                if before.is_none_or(|b| !Arc::ptr_eq(b, entry) && !b.is_same(entry)) {
                    changed.push((before.map(Arc::as_ref), Some(&**entry)));
                }
            }
            for entry in list(old) {
                if find(new, &entry.offer.name).is_none() {
                    changed.push((Some(&**entry), None));
                }
            }
        }
        changed
    }

    /// Services labelled as underlay controllers, in no order.
    pub fn underlay_services(&self) -> &[Arc<Service>] {
        &self.underlays
    }

    /// The offers of a namespace, by name.
    pub fn offers_in(&self, namespace: &str) -> &[Arc<OfferEntry>] {
        self.offers.get(namespace).map_or(&[], |o| o.list())
    }

    /// Of these the ones that may select a pod with such labels, by name.
    pub fn candidate_offers(
        &self,
        namespace: &str,
        labels: &Labels,
    ) -> impl Iterator<Item = &OfferEntry> {
        let offers = self
            .offers
            .get(namespace)
            .map(|o| (o.list(), o.candidates(labels)));
        let candidates = offers
            .into_iter()
            .flat_map(|(list, at)| at.into_iter().map(|i| &list[i]));
        candidates.map(Arc::as_ref)
    }

    /// Whether a target of an offer in `namespace` selects anything: for offers that
    /// are not kept yet. Looks at every object of its kind.
    pub fn selects_any(&self, namespace: &str, target: &Target) -> bool {
        !members_of(target, namespace, self, &CowMap::default()).is_empty()
    }

    pub fn service(&self, namespace: &str, name: &str) -> Option<&Arc<Service>> {
        self.services.get(&key(namespace, name))
    }

    /// The Services labelled as providers of `rule`, in no order.
    pub fn providers(&self, rule: &str) -> &[Arc<Service>] {
        self.providers.get(rule).map_or(&[], Vec::as_slice)
    }

    pub fn endpoint_slices(&self, namespace: &str, service: &str) -> &[Arc<EndpointSlice>] {
        self.slices_by_service
            .get(&key(namespace, service))
            .map_or(&[], |v| v)
    }
}

/// What differs between two maps of shared values, by their identity.
fn changed<'a, T>(
    now: &'a CowMap<Arc<T>>,
    earlier: &'a CowMap<Arc<T>>,
) -> impl Iterator<Item = (&'a str, Option<&'a Arc<T>>, Option<&'a Arc<T>>)> {
    now.diff(earlier).filter(|(_, old, new)| match (old, new) {
        (Some(old), Some(new)) => !Arc::ptr_eq(old, new),
        _ => true,
    })
}
