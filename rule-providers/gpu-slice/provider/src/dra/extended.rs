//! Extended resources that DRA drivers serve on nodes without them (KEP-5004), as kube-scheduler
//! allocates them: a class names the resource, and the node has none in `allocatable`.

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
    /// The resource that the request for GPUs means.
    own: String,
    /// Names and units of all of them, the own one too.
    served: Vec<(String, u32)>,
    /// On nodes without any of them, with the pod's claims.
    pending: PendingRequests,
    /// The rule is for more than the pod requests.
    too_few: Option<Unfit>,
}

impl ExtendedResources {
    /// `None`: no class serves what the pod requests. `claims`: those of the pod.
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

    /// What drivers must give on such a node; Err: it is not what the rule is for.
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
