//! GPUs in the API server's objects: allocations and free cards. Shares no code with the
//! provider.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{Api, Client, ResourceExt, api::ListParams};

use crate::gpu::{CARDS, DEVICES};

const CARD: u32 = 1000;

/// The nodes and pods at one time.
pub struct Audit {
    nodes: BTreeMap<String, Node>,
    pods: Vec<Pod>,
}

impl Audit {
    pub async fn read(client: &Client) -> Self {
        let (nodes, pods): (Api<Node>, Api<Pod>) = (
            Api::all(client.clone()),
            Api::default_namespaced(client.clone()),
        );
        let all = ListParams::default();
        let pods = pods.list(&all).await.unwrap().items;
        let nodes = nodes.list(&all).await.unwrap().items;
        let nodes = nodes.into_iter().map(|n| (n.name_any(), n)).collect();
        Self { nodes, pods }
    }

    pub fn pending(&self) -> Vec<&Pod> {
        self.pods.iter().filter(|p| node_of(p).is_none()).collect()
    }

    pub fn bound(&self) -> usize {
        self.pods.len() - self.pending().len()
    }

    /// Faults: a card or resource over-committed, a pod without its cards, or with a card that
    /// its node does not have.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for pod in self.pods.iter().filter(|p| node_of(p).is_some()) {
            if let Err(fault) = self.given(pod) {
                faults.push(format!("{}: {fault}", pod.name_any()));
            }
        }
        for name in self.nodes.keys() {
            for (card, (milli, pods)) in self.cards(name) {
                if milli > CARD {
                    faults.push(format!("{name}, card {card}: {milli}m, by {pods:?}"));
                }
            }
            for (resource, used) in self.used(name) {
                let has = self.offers(name, &resource);
                if used > has {
                    faults.push(format!("{name}: {used} of {has} {resource}"));
                }
            }
        }
        faults
    }

    /// The nodes with enough free resources for the pod.
    pub fn hosts(&self, pod: &Pod) -> Vec<&str> {
        let want = milli_of(pod);
        let fits = |name: &&String| {
            let used = self.used(name);
            let units = requests(pod).into_iter().all(|(resource, wanted)| {
                let used = used.get(&resource).copied().unwrap_or(0);
                self.offers(name, &resource) - used >= wanted
            });
            let held = self.cards(name);
            let free = |i: i64| {
                let held = held.get(&i).map_or(0, |(milli, _)| *milli);
                CARD.saturating_sub(held)
            };
            let mut cards = 0..self.offers(name, CARDS);
            units && (want == 0 || cards.any(|i| free(i) >= want))
        };
        self.nodes.keys().filter(fits).map(String::as_str).collect()
    }

    /// Checks that a bound pod has its cards.
    fn given(&self, pod: &Pod) -> Result<(), String> {
        let (node, parts, want) = (
            node_of(pod).unwrap_or_default(),
            record(pod)?,
            milli_of(pod),
        );
        if !self.nodes.contains_key(node) {
            return Err(format!("node {node} is not there"));
        }
        let sizes: Vec<u32> = parts.iter().map(|(_, milli)| *milli).collect();
        let expected = if want == 0 { vec![] } else { vec![want] };
        if sizes != expected {
            return Err(format!("wants {want}m of a card of {node}, has {parts:?}"));
        }
        let has = self.offers(node, CARDS);
        match parts.iter().find(|(card, _)| !(0..has).contains(card)) {
            Some((card, _)) => Err(format!("node {node} has {has} cards, and not {card}")),
            None => Ok(()),
        }
    }

    /// The allocated part of each card of a node, and its pods.
    fn cards(&self, node: &str) -> BTreeMap<i64, (u32, Vec<String>)> {
        let mut cards: BTreeMap<i64, (u32, Vec<String>)> = BTreeMap::new();
        for pod in self.on(node) {
            for (card, milli) in record(pod).unwrap_or_default() {
                let (sum, pods) = cards.entry(card).or_default();
                *sum += milli;
                pods.push(pod.name_any());
            }
        }
        cards
    }

    fn used(&self, node: &str) -> BTreeMap<String, i64> {
        let mut used = BTreeMap::new();
        for (resource, count) in self.on(node).flat_map(requests) {
            *used.entry(resource).or_default() += count;
        }
        used
    }

    fn on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.iter().filter(move |p| node_of(p) == Some(node))
    }

    fn offers(&self, node: &str, resource: &str) -> i64 {
        let status = self.nodes.get(node).and_then(|n| n.status.as_ref());
        let offered = status.and_then(|s| s.allocatable.as_ref()?.get(resource));
        offered.map_or(0, number)
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The part of a card that the policy of the pod's app requests.
fn milli_of(pod: &Pod) -> u32 {
    match pod.labels().get("app").map(String::as_str) {
        Some("quarter") => 250,
        Some("half") => 500,
        Some("whole") => 1000,
        _ => 0,
    }
}

/// The units of GPU resources that a pod requests.
fn requests(pod: &Pod) -> BTreeMap<String, i64> {
    let containers = pod.spec.iter().flat_map(|s| &s.containers);
    let requests = containers.filter_map(|c| c.resources.as_ref()?.requests.as_ref());
    requests
        .flatten()
        .filter(|(resource, _)| resource.starts_with("nvidia.com/"))
        .map(|(resource, quantity)| (resource.clone(), number(quantity)))
        .collect()
}

fn number(quantity: &Quantity) -> i64 {
    quantity.0.parse().unwrap()
}

/// Cards and thousandths of them: `0:250`, `0:1000,1:1000`.
fn record(pod: &Pod) -> Result<Vec<(i64, u32)>, String> {
    let Some(text) = pod.annotations().get(DEVICES) else {
        return Ok(Vec::new());
    };
    let part = |part: &str| {
        let (card, milli) = part.split_once(':')?;
        Some((card.parse().ok()?, milli.parse().ok()?))
    };
    let parts: Option<Vec<_>> = text.split(',').map(part).collect();
    parts.ok_or_else(|| format!("{text:?} is no record"))
}
