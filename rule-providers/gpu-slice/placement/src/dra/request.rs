//! The requests of claims that are not allocated yet.

use super::{
    model::{Claim, Count, ExactRequest},
    node::NodeDevice,
    selector::Conditions,
    store::DeviceStore,
};

/// A request for devices that are not allocated yet.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingRequest {
    /// The alternatives, the preferred first; one for a request without `firstAvailable`.
    pub(super) alternatives: Vec<Alternative>,
}

/// One of the ways in which a request may be met.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Alternative {
    pub(super) exact: ExactRequest,
    pub(super) conditions: Conditions,
    pub(super) unknown_class: bool,
}

/// Returns the requests of claims that are not allocated yet, in the order of the claims and of each
/// claim's specification. `claims` are all claims of the pod.
pub fn pending_requests<'a>(
    pools: &DeviceStore,
    claims: impl IntoIterator<Item = &'a Claim>,
) -> Vec<PendingRequest> {
    let open = claims.into_iter().filter(|c| c.allocated.is_none());
    open.flat_map(|claim| requests(pools, claim)).collect()
}

/// Returns the requests of a claim, allocated or not.
pub fn requests(pools: &DeviceStore, claim: &Claim) -> impl Iterator<Item = PendingRequest> {
    claim.requests.iter().map(|alternatives| PendingRequest {
        alternatives: alternatives
            .iter()
            .map(|exact| Alternative::new(pools, exact.clone()))
            .collect(),
    })
}

impl PendingRequest {
    /// Returns the request for units of an extended resource; `None`: no class serves the resource.
    /// Nodes on which the resource is allocatable need no class.
    pub fn of_resource(pools: &DeviceStore, resource: &str, units: u32) -> Option<Self> {
        let exact = ExactRequest {
            class: pools.class_of_resource(resource)?.name.clone(),
            count: Count::Exact(units),
            ..ExactRequest::default()
        };
        Some(Self {
            alternatives: vec![Alternative::new(pools, exact)],
        })
    }

    /// Returns the least number of devices that meets the request: 1 for all devices.
    pub fn count(&self) -> u32 {
        let counts = self.alternatives.iter().map(|a| match a.exact.count {
            Count::Exact(count) => count,
            Count::All => 1,
        });
        counts.min().unwrap_or(0)
    }

    /// Returns whether the device, in use or not, meets the selectors of an alternative, as far as
    /// they are readable; CEL decides about the rest.
    pub fn matches(&self, offered: &NodeDevice) -> bool {
        self.alternatives.iter().any(|a| a.matches(offered))
    }

    /// Returns a class of the request that does not exist.
    pub fn unknown_class(&self) -> Option<&str> {
        let unknown = self.alternatives.iter().find(|a| a.unknown_class);
        unknown.map(|a| &*a.exact.class)
    }
}

impl Alternative {
    fn new(pools: &DeviceStore, exact: ExactRequest) -> Self {
        let class = pools.class(&exact.class);
        let of_class = class.into_iter().flat_map(|c| &c.selectors);
        let selectors = of_class.chain(&exact.selectors).map(AsRef::as_ref);
        Self {
            conditions: Conditions::read(selectors),
            unknown_class: class.is_none(),
            exact,
        }
    }

    pub(super) fn matches(&self, offered: &NodeDevice) -> bool {
        let driver = &offered.id().pool.driver;
        !self.unknown_class && self.conditions.hold(driver, offered.device())
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
