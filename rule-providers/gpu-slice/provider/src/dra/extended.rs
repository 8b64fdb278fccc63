//! The extended resources that DRA drivers serve (KEP-5004) if a class names the resource and the
//! node has none of it in `allocatable`. kube-scheduler allocates their devices in the same way.

use tautline_core::{model::Node, quantity};
use tautline_gpu_placement::{dra::PendingRequest, names};
use tautline_sdk::{Container, ContainerKind, Workload};

use super::Devices;
use crate::{
    fit::Unfit,
    gpu_request::{Amount, GpuRequest},
};

/// The requests of a pod for resources that a class serves.
#[derive(Debug)]
pub(crate) struct ExtendedResources {
    /// The resource by which drivers serve the request for GPUs; `None`: they do not.
    own: Option<String>,
    /// The names of all resources that a class serves, including `own`, and the requests that
    /// drivers must serve on nodes without the resource: one of each container.
    served: Vec<Served>,
    /// The reason for a refusal, if the rule requests more cards than the pod.
    pub(crate) too_few: Option<Unfit>,
}

impl ExtendedResources {
    /// Reads the requests of a pod. `None`: no class serves any of them.
    pub(crate) fn new(
        devices: &Devices,
        request: &GpuRequest,
        workload: &Workload,
    ) -> Option<Self> {
        let served = served(devices, workload);
        if served.is_empty() {
            return None;
        }
        let mut all = served.iter();
        let own = match &request.amount {
            Amount::Units { resource, .. } => all.find(|(name, _)| name == resource),
            Amount::Cards(_) => all.find(|(name, _)| names::is_whole(name)),
            Amount::Nothing => all.next(),
            Amount::Share(_) | Amount::Memory(_) | Amount::OfAgent(_) => None,
        };
        let too_few = own.and_then(|(name, requests)| {
            let units: i64 = requests.iter().map(|r| i64::from(r.count())).sum();
            match request.amount {
                Amount::Cards(cards) if cards > units => Some(Unfit::not_requested(cards, name)),
                _ => None,
            }
        });
        Some(Self {
            own: own.map(|(name, _)| name.clone()),
            too_few,
            served,
        })
    }

    /// Returns whether a driver, and no device plugin, serves the request for GPUs on the node.
    pub(crate) fn are_for(&self, node: &Node) -> bool {
        let own = self.own.as_ref();
        own.is_some_and(|own| node.allocatable.milli(own) == 0)
    }

    /// Returns the requests that drivers must serve on the node.
    pub(crate) fn pending(&self, node: &Node) -> impl Iterator<Item = PendingRequest> {
        lacking(&self.served, node)
    }
}

/// Returns a pod's requests for extended resources that drivers must serve on the node.
pub(super) fn pending(devices: &Devices, workload: &Workload, node: &Node) -> Vec<PendingRequest> {
    lacking(&served(devices, workload), node).collect()
}

type Served = (String, Vec<PendingRequest>);

/// Returns the resources of the pod that a class serves.
fn served(devices: &Devices, workload: &Workload) -> Vec<Served> {
    let served = |name: &String| {
        let of_containers = units_by_container(workload, name)?.into_iter();
        let requests = of_containers.map(|units| devices.resource_request(name, units));
        let requests: Vec<_> = requests.collect::<Option<_>>()?;
        (!requests.is_empty()).then(|| (name.clone(), requests))
    };
    workload.requests.keys().filter_map(served).collect()
}

/// Returns the requests for the resources that the node itself does not have.
fn lacking(served: &[Served], node: &Node) -> impl Iterator<Item = PendingRequest> {
    let lacking = served
        .iter()
        .filter(|(name, _)| node.allocatable.milli(name) == 0);
    lacking.flat_map(|(_, requests)| requests.clone())
}

/// Returns the units of a resource that each container requests, as kube-scheduler asks for
/// devices: one request of each container, and one for what init containers need in addition. Two
/// requests may have parts of one device, and the units of one request are of different devices.
fn units_by_container(workload: &Workload, resource: &str) -> Option<Vec<u32>> {
    let all = u32::try_from(workload.request_milli(resource) / 1000).ok()?;
    let whole = |text: &String| quantity::parse_milli(text).ok().map(|milli| milli / 1000);
    let units = |container: &Container| {
        let units = container.requests.get(resource).and_then(whole);
        u32::try_from(units.unwrap_or(0)).unwrap_or(u32::MAX)
    };
    let (mut additional, mut parts) = (0, Vec::new());
    // The devices of later containers serve an init container as well.
    let mut later: u32 = 0;
    for container in workload.containers.iter().rev() {
        let units = units(container);
        if container.kind == ContainerKind::Init {
            additional = additional.max(units.saturating_sub(later));
        } else {
            later = later.saturating_add(units);
            parts.push(units);
        }
    }
    parts.push(additional);
    parts.retain(|units| *units > 0);
    parts.reverse();
    let sum = parts
        .iter()
        .fold(0u32, |sum, units| sum.saturating_add(*units));
    // If the requests of some containers are unknown, one container counts with the pod's request.
    if sum != all {
        parts = Vec::from_iter((all > 0).then_some(all));
    }
    Some(parts)
}
