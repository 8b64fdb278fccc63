//! The extended resources that DRA drivers serve (KEP-5004) if a class names the resource and the
//! node has none of it in `allocatable`. kube-scheduler allocates their devices in the same way.

use tautline_core::model::Node;
use tautline_gpu_placement::{dra::PendingRequest, names};
use tautline_sdk::Workload;

use super::Devices;
use crate::{
    fit::Unfit,
    gpu_request::{Amount, GpuRequest},
};

/// The requests of a pod for resources that a class serves.
#[derive(Debug)]
pub(crate) struct ExtendedResources {
    /// The resource by which drivers serve the request for GPUs.
    own: String,
    /// The names of all resources that a class serves, including `own`, and the requests that
    /// drivers must serve on nodes without the resource.
    served: Vec<(String, PendingRequest)>,
    /// The reason for a refusal, if the rule requests more cards than the pod.
    too_few: Option<Unfit>,
}

impl ExtendedResources {
    /// Reads the requests of a pod. `None`: no class serves the requested GPUs.
    pub(crate) fn new(
        devices: &Devices,
        request: &GpuRequest,
        workload: &Workload,
    ) -> Option<Self> {
        let served = |name: &String| {
            let units = u32::try_from(workload.request_milli(name) / 1000).ok()?;
            let request = (units > 0).then(|| devices.resource_request(name, units));
            Some((name.clone(), request??))
        };
        let served: Vec<_> = workload.requests.keys().filter_map(served).collect();
        let mut all = served.iter();
        let (own, units) = match &request.amount {
            Amount::Units { resource, .. } => all.find(|(name, _)| name == resource),
            Amount::Cards(_) => all.find(|(name, _)| names::is_whole(name)),
            Amount::Nothing => all.next(),
            Amount::Share(_) | Amount::Memory(_) | Amount::OfAgent(_) => None,
        }?;
        let too_few = match request.amount {
            Amount::Cards(cards) if cards > i64::from(units.count()) => {
                Some(Unfit::not_requested(cards, own))
            }
            _ => None,
        };
        Some(Self {
            own: own.clone(),
            too_few,
            served,
        })
    }

    /// Returns whether a driver, and no device plugin, serves the request for GPUs on the node.
    pub(crate) fn are_for(&self, node: &Node) -> bool {
        node.allocatable.milli(&self.own) == 0
    }

    /// Returns the requests that drivers must serve on the node, with those of the pod's `claims`.
    /// Fails if the rule requests more cards than the pod.
    pub(crate) fn pending(
        &self,
        claims: Option<&[PendingRequest]>,
        node: &Node,
    ) -> Result<Vec<PendingRequest>, Unfit> {
        if let Some(unfit) = &self.too_few {
            return Err(unfit.clone());
        }
        let mut pending = claims.unwrap_or_default().to_vec();
        let served = self.served.iter();
        let lacking = served.filter(|(name, _)| node.allocatable.milli(name) == 0);
        let requests = lacking.map(|(_, request)| request.clone());
        pending.extend(requests);
        Ok(pending)
    }
}
