use super::{
    model::{Claim, ClaimRequest, Count, ExactRequest},
    node::{NodeDevice, NodeDevices},
    selector::Conditions,
    store::DeviceStore,
};

/// The requests of a pod for devices that are not allocated yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PendingRequests {
    /// Requests in the order of the claims and of each claim's specification.
    pub requests: Vec<PendingRequest>,
}

/// The first alternative of a request without devices; the scheduler tries further alternatives
/// after it.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingRequest {
    /// Class, number and selectors of the devices.
    pub exact: ExactRequest,
    pub(super) conditions: Conditions,
    pub(super) unknown_class: bool,
    /// Number of alternatives that the request has, including this one.
    pub alternatives: usize,
}

/// The result of matching a device, in use or not, with the selectors of a request and its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// A readable condition is not met, or the class is not known.
    No,
    /// The readable conditions match; CEL decides about the rest.
    Maybe,
    /// All conditions are readable and met.
    Yes,
}

/// Returns the requests of claims that are not allocated yet. `claims` are all claims of the pod.
pub fn pending_requests<'a>(
    pools: &DeviceStore,
    claims: impl IntoIterator<Item = &'a Claim>,
) -> PendingRequests {
    let mut pending = PendingRequests::default();
    let open = claims.into_iter().filter(|c| c.allocated.is_none());
    for ClaimRequest { alternatives, .. } in open.flat_map(|c| &c.requests) {
        if let Some(first) = alternatives.first() {
            let request = PendingRequest::new(pools, first, alternatives.len());
            pending.requests.push(request);
        }
    }
    pending
}

impl PendingRequests {
    /// Adds a request for an extended resource, and returns whether a class serves the resource.
    /// Nodes on which the resource is allocatable need no class.
    pub fn add_resource(&mut self, pools: &DeviceStore, resource: &str, units: u32) -> bool {
        let Some(class) = pools.class_of_resource(resource) else {
            return false;
        };
        let exact = ExactRequest {
            class: class.name.clone(),
            count: Count::Exact(units),
            ..ExactRequest::default()
        };
        self.requests.push(PendingRequest::new(pools, &exact, 1));
        true
    }
}

impl PendingRequest {
    fn new(pools: &DeviceStore, exact: &ExactRequest, alternatives: usize) -> Self {
        let class = pools.class(&exact.class);
        let of_class = class.into_iter().flat_map(|c| &c.selectors);
        let all = of_class.chain(&exact.selectors).map(AsRef::as_ref);
        Self {
            exact: exact.clone(),
            conditions: Conditions::read(all),
            unknown_class: class.is_none(),
            alternatives,
        }
    }

    /// The minimum number of devices for the request: 1 if it asks for all devices.
    pub fn count(&self) -> u32 {
        match self.exact.count {
            Count::Exact(count) => count,
            Count::All => 1,
        }
    }

    /// Returns whether the device meets the selectors, as far as they are readable.
    pub fn matches(&self, offered: &NodeDevice) -> Match {
        if self.unknown_class {
            return Match::No;
        }
        let driver = &offered.id().pool.driver;
        if !self.conditions.hold(driver, offered.device()) {
            return Match::No;
        }
        if self.conditions.incomplete {
            Match::Maybe
        } else {
            Match::Yes
        }
    }
}

impl NodeDevices {
    /// The number of devices that are free for one request, without regard to the pod's other
    /// requests.
    pub fn free_count(&self, part: &PendingRequest) -> usize {
        self.positions_for(part).count()
    }

    fn positions_for<'a>(&'a self, part: &'a PendingRequest) -> impl Iterator<Item = usize> + 'a {
        let all = self.devices().iter().enumerate();
        all.filter(|(i, o)| {
            part.matches(o) != Match::No && self.unavailable(*i, &part.exact).is_none()
        })
        .map(|(i, _)| i)
    }

    /// Takes the devices that the scheduler likely chooses, and returns their positions: request by
    /// request, the first matches in the allocator's order. Unreadable selectors, constraints
    /// between devices and backtracking may lead to another choice. `None`: too few devices are
    /// free, and nothing is taken.
    pub fn take_likely(&mut self, pending: &PendingRequests) -> Option<Vec<usize>> {
        let mut after = self.clone();
        let mut taken = Vec::new();
        for part in &pending.requests {
            let most = match part.exact.count {
                Count::Exact(count) => usize::try_from(count).unwrap_or(usize::MAX),
                Count::All => after.free_count(part),
            };
            let mut own = Vec::new();
            while own.len() < most {
                // A request gets one share of a device at most.
                let from = own.last().map_or(0, |last| last + 1);
                let next = after.positions_for(part).find(|i| *i >= from)?;
                after.take(next, &part.exact).ok()?;
                own.push(next);
            }
            if own.is_empty() {
                return None;
            }
            taken.extend(own);
        }
        *self = after;
        Some(taken)
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
