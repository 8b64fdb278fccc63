//! The extended resources that DRA drivers serve (KEP-5004) if a class names the resource and the
//! node has none of it in `allocatable`. kube-scheduler allocates their devices in the same way.

use tautline_core::model::Node;
use tautline_gpu_placement::{Names, dra::PendingRequests};
use tautline_sdk::Workload;

use super::Devices;
use crate::{
    gpu_request::{Amount, GpuRequest},
    unfit::Unfit,
};

/// The requests of a pod for resources that a class serves.
#[derive(Debug)]
pub(crate) struct ExtendedResources {
    /// The resource by which drivers serve the request for GPUs.
    own: String,
    /// The names and units of all resources that a class serves, including `own`.
    served: Vec<(String, u32)>,
    /// The requests that drivers must serve on nodes without any of these resources, with the pod's
    /// claims.
    pending: PendingRequests,
    /// The reason for a refusal, if the rule requests more cards than the pod.
    too_few: Option<Unfit>,
}

impl ExtendedResources {
    /// Reads the requests of a pod; `claims` are the pod's claims. `None`: no class serves the
    /// requested GPUs.
    pub(crate) fn new(
        devices: &Devices,
        names: &Names,
        request: &GpuRequest,
        workload: &Workload,
        claims: Option<&PendingRequests>,
    ) -> Option<Self> {
        let units = |name: &String| {
            let units = u32::try_from(workload.request_milli(name) / 1000).ok()?;
            (units > 0 && devices.serves(name)).then(|| (name.clone(), units))
        };
        let served: Vec<(String, u32)> = workload.requests.keys().filter_map(units).collect();
        let mut all = served.iter();
        let own = match &request.amount {
            Amount::Units { resource, .. } => all.find(|(name, _)| name == resource),
            Amount::Cards(_) => all.find(|(name, _)| names.is_whole(name)),
            Amount::Nothing => all.next(),
            Amount::Share(_) | Amount::Memory(_) | Amount::OfAgent(_) => None,
        };
        let (own, units) = own?.clone();
        let too_few = match request.amount {
            Amount::Cards(cards) if cards > i64::from(units) => {
                Some(Unfit::not_requested(cards, &own))
            }
            _ => None,
        };
        let mut pending = claims.cloned().unwrap_or_default();
        for (name, units) in &served {
            devices.add_resource(&mut pending, name, *units);
        }
        Some(Self {
            own,
            served,
            pending,
            too_few,
        })
    }

    /// Returns whether a driver, and no device plugin, serves the request for GPUs on the node.
    pub(crate) fn are_for(&self, node: &Node) -> bool {
        node.allocatable.milli(&self.own) == 0
    }

    /// Returns the requests that drivers must serve on the node. Fails if the rule requests more
    /// cards than the pod.
    pub(crate) fn pending(
        &self,
        devices: &Devices,
        claims: Option<&PendingRequests>,
        node: &Node,
    ) -> Result<PendingRequests, Unfit> {
        if let Some(unfit) = &self.too_few {
            return Err(unfit.clone());
        }
        let lacks = |(name, _): &&(String, u32)| node.allocatable.milli(name) == 0;
        if self.served.iter().all(|of| lacks(&of)) {
            return Ok(self.pending.clone());
        }
        let mut pending = claims.cloned().unwrap_or_default();
        for (name, units) in self.served.iter().filter(lacks) {
            devices.add_resource(&mut pending, name, *units);
        }
        Ok(pending)
    }
}
