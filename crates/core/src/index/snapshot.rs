//! Immutable views of an index, and the differences between two.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{
    flight::InFlight,
    offers::{Member, OfferEntry, Offers},
};
use crate::{
    cow_map::CowMap,
    model::{
        DeviceClass, EndpointSlice, Namespace, Node, Pod, Policy, Resources, Service, Target,
        TargetKind, WatchedObject, key,
    },
    names::GATE_RESOURCE,
    reference::Reference,
    remote::RemotePods,
    selector::Labels,
    volumes::{PodVolumes, Storage},
};

/// The pods bound to one node that have not finished.
#[derive(Clone, Debug, Default)]
pub(super) struct NodePods {
    pods: Vec<Arc<Pod>>,
    /// The sums of the pods' requests of [`RANKED_RESOURCES`], in thousandths of the unit.
    requested: [i128; 2],
}

/// The resources by which kube-scheduler ranks nodes: their requests are summed up for each node.
pub const RANKED_RESOURCES: [&str; 2] = ["cpu", "memory"];

impl NodePods {
    pub(super) fn add(&mut self, pod: &Arc<Pod>) {
        self.count(pod, 1);
        self.pods.push(Arc::clone(pod));
    }

    /// Removes a pod; returns whether no pod is left.
    pub(super) fn remove(&mut self, pod: &Pod) -> bool {
        let is_it = |p: &Arc<Pod>| p.name == pod.name && p.namespace == pod.namespace;
        if let Some(at) = self.pods.iter().position(is_it) {
            let gone = self.pods.remove(at);
            self.count(&gone, -1);
        }
        self.pods.is_empty()
    }

    fn count(&mut self, pod: &Pod, times: i128) {
        for (sum, resource) in self.requested.iter_mut().zip(RANKED_RESOURCES) {
            *sum += times * i128::from(pod.requests.milli(resource));
        }
    }
}

/// An immutable view of the cluster. A clone costs a few reference counts.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(super) pods: CowMap<Arc<Pod>>,
    pub(super) pods_by_node: CowMap<Arc<NodePods>>,
    pub(super) rejected: CowMap<Arc<Pod>>,
    pub(super) with_underlay: CowMap<Arc<Pod>>,
    pub(super) with_anti_affinity: CowMap<Arc<Pod>>,
    pub(super) nodes: CowMap<Arc<Node>>,
    pub(super) namespaces: CowMap<Arc<Namespace>>,
    pub(super) device_classes: CowMap<Arc<DeviceClass>>,
    pub(super) pod_volumes: CowMap<Arc<PodVolumes>>,
    pub(super) storage: Option<Arc<Storage>>,
    pub(super) services: CowMap<Arc<Service>>,
    pub(super) slices: CowMap<Arc<EndpointSlice>>,
    pub(super) slices_by_service: CowMap<Arc<Vec<Arc<EndpointSlice>>>>,
    pub(super) policies: CowMap<Arc<Policy>>,
    pub(super) offers: CowMap<Arc<Offers>>,
    pub(super) providers: Arc<HashMap<Box<str>, Vec<Arc<Service>>>>,
    pub(super) underlays: Arc<Vec<Arc<Service>>>,
    pub(super) dynamic_objects: CowMap<Arc<WatchedObject>>,
    pub(super) in_flight: CowMap<Arc<InFlight>>,
    pub(super) remote_pods: CowMap<Arc<RemotePods>>,
}

impl Snapshot {
    /// The pod of this name.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Arc<Pod>> {
        self.pods.get(&key(namespace, name))
    }

    /// Returns the pod that a reference names; `None` for objects of other kinds or clusters.
    pub fn pod_of(&self, reference: &Reference) -> Option<&Arc<Pod>> {
        let pod = Some(reference).filter(|r| r.is_local_pod())?;
        self.pod(&pod.namespace, &pod.name)
    }

    /// The claims of a pod's volumes; `None` if they are unknown.
    pub fn pod_volumes(&self, namespace: &str, name: &str) -> Option<&Arc<PodVolumes>> {
        self.pod_volumes.get(&key(namespace, name))
    }

    /// Returns a snapshot that knows these volumes of one pod.
    pub fn with_volumes(&self, volumes: PodVolumes, storage: Storage) -> Self {
        let mut all = self.clone();
        let key = key(&volumes.namespace, &volumes.name);
        all.pod_volumes.insert(&key, Arc::new(volumes));
        all.storage = Some(Arc::new(storage));
        all
    }

    /// Returns a snapshot in which the pod counts as on `node` for Kubernetes' rules. Members of
    /// offers and pods in flight are unchanged.
    pub fn with_placed(&self, pod: &Arc<Pod>, node: &str) -> Self {
        let mut all = self.clone();
        let key = key(&pod.namespace, &pod.name);
        let placed = Arc::new(Pod {
            node: Some(node.into()),
            placement: None,
            ..Pod::clone(pod)
        });
        let before = all.pods.insert(&key, Arc::clone(&placed));
        if let Some(before) = before
            && let Some(old_node) = &before.node
            && let Some(on) = all.pods_by_node.get_mut(old_node)
            && Arc::make_mut(on).remove(&before)
        {
            all.pods_by_node.remove(old_node);
        }
        all.count_on_node(&key, &placed);
        all
    }

    /// Returns a snapshot with only those bound pods that `keeps` accepts.
    pub(crate) fn with_only_pods(&self, keeps: impl Fn(&Pod) -> bool) -> Self {
        let mut all = Self {
            pods: CowMap::default(),
            pods_by_node: CowMap::default(),
            with_anti_affinity: CowMap::default(),
            ..self.clone()
        };
        let bound = |p: &Pod| p.node.is_some() && !p.finished;
        for (key, pod) in self.pods.iter().filter(|(_, p)| bound(p) && keeps(p)) {
            all.pods.insert(key, Arc::clone(pod));
            all.count_on_node(key, pod);
        }
        all
    }

    /// Counts a bound pod on its node, and its anti-affinity.
    fn count_on_node(&mut self, key: &str, pod: &Arc<Pod>) {
        let Some(node) = &pod.node else { return };
        if self.pods_by_node.get(node).is_none() {
            self.pods_by_node.insert(node, Arc::default());
        }
        if let Some(on) = self.pods_by_node.get_mut(node) {
            Arc::make_mut(on).add(pod);
        }
        if pod.pod_terms.iter().any(|t| t.anti) {
            self.with_anti_affinity.insert(key, Arc::clone(pod));
        }
    }

    /// All storage objects; `None` if they are unknown.
    pub fn storage(&self) -> Option<&Storage> {
        self.storage.as_deref()
    }

    /// All pods, unordered.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values()
    }

    /// The pods bound to `node` that have not finished.
    pub fn pods_on(&self, node: &str) -> &[Arc<Pod>] {
        self.pods_by_node.get(node).map_or(&[], |on| &on.pods)
    }

    /// The CPU and memory that unfinished pods on the node request, in thousandths of a core and of
    /// a byte.
    pub fn requested_on(&self, node: &str) -> [i128; 2] {
        self.pods_by_node
            .get(node)
            .map_or([0; 2], |on| on.requested)
    }

    /// The pods that filter has answered and whose node the watch does not show yet.
    pub fn in_flight(&self) -> impl Iterator<Item = &Arc<InFlight>> {
        self.in_flight.values()
    }

    /// The flight of the pod of this name, if it is in flight.
    pub fn flight(&self, namespace: &str, name: &str) -> Option<&Arc<InFlight>> {
        self.in_flight.get(&key(namespace, name))
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    /// All nodes, unordered.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    /// The labels of a namespace; `None` if it is unknown.
    pub fn namespace_labels(&self, name: &str) -> Option<&Labels> {
        self.namespaces.get(name).map(|n| &n.labels)
    }

    /// Returns whether devices of a DeviceClass serve this resource on nodes that do not offer it
    /// themselves.
    pub fn is_served_by_devices(&self, resource: &str) -> bool {
        let mut classes = self.device_classes.values();
        match resource.strip_prefix("deviceclass.resource.kubernetes.io/") {
            Some(class) => self.device_classes.get(class).is_some(),
            None => classes.any(|c| c.extended_resource.as_deref() == Some(resource)),
        }
    }

    /// Returns the first requested resource that a DeviceClass serves.
    pub fn requested_of_class<'a>(&self, requests: &'a Resources) -> Option<&'a str> {
        let mut requests = requests.iter();
        let of_class = requests.find(|(name, amount)| {
            *amount > 0 && *name != GATE_RESOURCE && self.is_served_by_devices(name)
        });
        of_class.map(|(name, _)| name)
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The number of pods.
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// The policy of this name.
    pub fn policy(&self, namespace: &str, name: &str) -> Option<&Arc<Policy>> {
        self.policies.get(&key(namespace, name))
    }

    /// All policies, unordered.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.policies.values()
    }

    /// The pods that have no node because of Tautline's reason codes.
    pub fn rejected(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.rejected.values()
    }

    /// The number of [`rejected`](Self::rejected) pods.
    pub fn rejected_count(&self) -> usize {
        self.rejected.len()
    }

    /// The pods with a finalizer of the underlay.
    pub fn with_underlay_allocation(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.with_underlay.values()
    }

    /// The bound pods with required anti-affinity, unordered.
    pub fn with_anti_affinity(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.with_anti_affinity.values()
    }

    /// The nodes that differ from `earlier` or whose pods differ; a node may occur twice. The cost
    /// grows with the number of writes in between.
    pub fn changed_nodes<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = &'a str> {
        let nodes = changed(&self.nodes, &earlier.nodes).map(|(name, ..)| name);
        let pods = changed(&self.pods_by_node, &earlier.pods_by_node).map(|(name, ..)| name);
        nodes.chain(pods)
    }

    /// The old and new states of pods that differ from `earlier`. The cost grows with the number of
    /// writes in between.
    pub fn changed_pods<'a>(
        &'a self,
        earlier: &'a Self,
    ) -> impl Iterator<Item = (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>)> {
        changed(&self.pods, &earlier.pods).map(|(_, old, new)| (old, new))
    }

    /// All offers, grouped by namespace.
    pub fn offers(&self) -> impl Iterator<Item = &OfferEntry> {
        let all = self.offers.values().flat_map(|offers| offers.list());
        all.map(Arc::as_ref)
    }

    /// The offer of this name.
    pub fn offer(&self, namespace: &str, name: &str) -> Option<&OfferEntry> {
        self.offers.get(namespace)?.get(name).map(Arc::as_ref)
    }

    /// The old and new states of offers that differ from `earlier` or whose members may differ. The
    /// cost grows with the number of writes in between.
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

    /// The Services labelled as underlay controllers, unordered.
    pub fn underlay_services(&self) -> &[Arc<Service>] {
        &self.underlays
    }

    /// The offers of a namespace, sorted by name.
    pub fn offers_in(&self, namespace: &str) -> &[Arc<OfferEntry>] {
        self.offers.get(namespace).map_or(&[], |o| o.list())
    }

    /// The offers of a namespace that may select a pod with these labels, sorted by name.
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

    /// Returns whether a target selects any object, for offers outside the index. It examines all
    /// objects of the kind.
    pub fn selects_any(&self, namespace: &str, target: &Target) -> bool {
        !members_of(target, namespace, self, &CowMap::default()).is_empty()
    }

    /// The Service of this name.
    pub fn service(&self, namespace: &str, name: &str) -> Option<&Arc<Service>> {
        self.services.get(&key(namespace, name))
    }

    /// The Services labelled as providers of `rule`, unordered.
    pub fn providers(&self, rule: &str) -> &[Arc<Service>] {
        self.providers.get(rule).map_or(&[], Vec::as_slice)
    }

    /// The EndpointSlices of a Service.
    pub fn endpoint_slices(&self, namespace: &str, service: &str) -> &[Arc<EndpointSlice>] {
        self.slices_by_service
            .get(&key(namespace, service))
            .map_or(&[], |v| v)
    }

    /// Returns the places of a Service's ready endpoints, sorted and without duplicates: the nodes
    /// of pods, and `HOST:PORT` of endpoints outside the cluster. A Service without any has its own
    /// name for a place.
    pub fn endpoint_places(&self, namespace: &str, service: &str) -> Vec<Arc<str>> {
        let slices = self.endpoint_slices(namespace, service).iter();
        let mut places: Vec<Arc<str>> = slices.flat_map(|s| s.places.iter().cloned()).collect();
        places.sort_unstable();
        places.dedup();
        if places.is_empty() {
            let external = self
                .service(namespace, service)
                .and_then(|s| s.external_place());
            places.push(external.unwrap_or_else(|| service.into()));
        }
        places
    }
}

fn changed<'a, T>(
    now: &'a CowMap<Arc<T>>,
    earlier: &'a CowMap<Arc<T>>,
) -> impl Iterator<Item = (&'a str, Option<&'a Arc<T>>, Option<&'a Arc<T>>)> {
    now.diff(earlier).filter(|(_, old, new)| match (old, new) {
        (Some(old), Some(new)) => !Arc::ptr_eq(old, new),
        _ => true,
    })
}

pub(super) fn selects_pod(target: &Target, pod: &Pod) -> bool {
    target.kind == TargetKind::Pod && target.selector.matches(&pod.labels)
}

/// Returns the objects that a target selects. For a target of a kind other than Pod it returns
/// `known` if the objects are equal, so that the target does not look changed.
pub(super) fn members_of(
    target: &Target,
    namespace: &str,
    now: &Snapshot,
    known: &CowMap<Member>,
) -> CowMap<Member> {
    let mut members = CowMap::default();
    let selector = &target.selector;
    let (api_version, kind) = target.selected_kind();
    if target.kind == TargetKind::Pod {
        for pod in now.pods.values().filter(|p| *p.namespace == *namespace) {
            if selects_pod(target, pod) {
                members.insert(&pod.name, Member::Pod(Arc::clone(pod)));
            }
        }
        return members;
    }
    let others = now.dynamic_objects.values().filter(|o| {
        let here = o.namespace.is_empty() || *o.namespace == *namespace;
        here && *o.api_version == *api_version && *o.kind == *kind && selector.matches(&o.labels)
    });
    if target.kind == TargetKind::Endpoint {
        let slices = now.slices.values().filter(|s| {
            *s.namespace == *namespace && !s.service.is_empty() && selector.matches(&s.labels)
        });
        let services = now.services.values().filter(|s| {
            *s.namespace == *namespace
                && s.external_name.is_some()
                && selector.matches(&s.external_labels)
        });
        let names = slices.map(|s| &s.service).chain(others.map(|o| &o.name));
        let names = names.chain(services.map(|s| &s.name));
        for name in names {
            members.insert(name, Member::Endpoint(Arc::clone(name)));
        }
    } else {
        for other in others {
            members.insert(&other.name, Member::Object(Arc::clone(other)));
        }
    }
    if members.len() == known.len() && members.iter().all(|(name, m)| known.get(name) == Some(m)) {
        return known.clone();
    }
    members
}
