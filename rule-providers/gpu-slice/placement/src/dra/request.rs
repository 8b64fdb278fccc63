use super::{
    model::{Allocation, Amounts, Claim, Count, ExactRequest},
    node::{NodeDevice, NodeDevices},
    selector::Conditions,
    store::DeviceStore,
};

/// The ID of the shares that a plan allocates, in place of a UID.
const PLANNED_SHARE: &str = "planned";

/// A request for devices that are not allocated yet. Only its first alternative counts; the
/// scheduler tries further ones after it.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingRequest {
    /// Class, number and selectors of the devices.
    pub exact: ExactRequest,
    conditions: Conditions,
    unknown_class: bool,
    /// Number of alternatives that the request has, including this one.
    pub alternatives: usize,
}

/// Returns the requests of claims that are not allocated yet, in the order of the claims and of each
/// claim's specification. `claims` are all claims of the pod.
pub fn pending_requests<'a>(
    pools: &DeviceStore,
    claims: impl IntoIterator<Item = &'a Claim>,
) -> Vec<PendingRequest> {
    let open = claims.into_iter().filter(|c| c.allocated.is_none());
    let request = |alternatives: &Vec<ExactRequest>| {
        let first = alternatives.first()?;
        Some(PendingRequest::new(
            pools,
            first.clone(),
            alternatives.len(),
        ))
    };
    open.flat_map(|c| &c.requests).filter_map(request).collect()
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
        Some(Self::new(pools, exact, 1))
    }

    fn new(pools: &DeviceStore, exact: ExactRequest, alternatives: usize) -> Self {
        let class = pools.class(&exact.class);
        let of_class = class.into_iter().flat_map(|c| &c.selectors);
        let selectors = of_class.chain(&exact.selectors).map(AsRef::as_ref);
        Self {
            conditions: Conditions::read(selectors),
            unknown_class: class.is_none(),
            exact,
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

    /// Returns whether the class is known and the device, in use or not, meets the selectors as far
    /// as they are readable; CEL decides about the rest.
    pub fn matches(&self, offered: &NodeDevice) -> bool {
        let driver = &offered.id().pool.driver;
        !self.unknown_class && self.conditions.hold(driver, offered.device())
    }
}

impl NodeDevices {
    /// Returns whether the request is certain to fail, even without the pod's other requests.
    pub fn lacks(&self, part: &PendingRequest) -> bool {
        match self.all_for(part) {
            Some(all) => !self.can_take_all(part, &all),
            None => self.free_count(part) < part.count() as usize,
        }
    }

    /// The positions of the devices that a request for all devices gets, in use or not. `None`: the
    /// request has a number, or selectors that cannot be read.
    fn all_for(&self, part: &PendingRequest) -> Option<Vec<usize>> {
        if part.exact.count != Count::All || !part.conditions.are_complete {
            return None;
        }
        let all = self.devices().iter().enumerate();
        let wanted =
            all.filter(|(_, o)| part.matches(o) && Self::capacity(o, &part.exact).is_some());
        Some(wanted.map(|(i, _)| i).collect())
    }

    /// Returns whether a request for all devices can have them. It gets none of them if one is not
    /// available, or if there may be more, in a pool that is left out.
    fn can_take_all(&self, part: &PendingRequest, all: &[usize]) -> bool {
        let mut positions = all.iter();
        !self.lacks_pool && !all.is_empty() && positions.all(|i| self.is_available(*i, &part.exact))
    }

    /// The number of devices that are free for one request, without regard to the pod's other
    /// requests.
    pub fn free_count(&self, part: &PendingRequest) -> usize {
        self.positions_for(part).count()
    }

    fn positions_for<'a>(&'a self, part: &'a PendingRequest) -> impl Iterator<Item = usize> + 'a {
        let all = self.devices().iter().enumerate();
        all.filter(|(i, o)| part.matches(o) && self.is_available(*i, &part.exact))
            .map(|(i, _)| i)
    }

    /// Takes the devices that the scheduler likely chooses, and returns their positions: request by
    /// request, the first matches in the allocator's order. Unreadable selectors, constraints
    /// between devices and backtracking may lead to another choice. `None`: too few devices are
    /// free, and nothing is taken.
    pub fn take_likely(&mut self, pending: &[PendingRequest]) -> Option<Vec<usize>> {
        let taken = self.take_all(pending)?.into_iter();
        Some(taken.map(|(position, ..)| position).collect())
    }

    /// Takes the devices as [`Self::take_likely`] does, and returns the allocations of a claim with
    /// these requests.
    pub fn allocate(&mut self, pending: &[PendingRequest]) -> Option<Vec<Allocation>> {
        let taken = self.take_all(pending)?.into_iter();
        let allocation = |(position, request, consumed): (usize, &PendingRequest, Amounts)| {
            let offered = &self.devices()[position];
            let is_shared = offered.device().shared;
            Allocation {
                device: offered.id().clone(),
                admin: request.exact.admin,
                share: is_shared.then(|| PLANNED_SHARE.into()),
                consumed: if is_shared { consumed } else { Amounts::new() },
                tolerations: request.exact.tolerations.clone(),
            }
        };
        Some(taken.map(allocation).collect())
    }

    /// Returns the positions of the taken devices, each with its request and the amounts that the
    /// request consumes; `None`: too few devices are free, and nothing is taken.
    fn take_all<'a>(
        &mut self,
        pending: &'a [PendingRequest],
    ) -> Option<Vec<(usize, &'a PendingRequest, Amounts)>> {
        let mut after = self.clone();
        let mut taken = Vec::new();
        for part in pending {
            if let Some(all) = self.all_for(part) {
                if !self.can_take_all(part, &all) {
                    return None;
                }
                for position in all {
                    taken.push((position, part, after.take(position, &part.exact)?));
                }
                continue;
            }
            let most = match part.exact.count {
                Count::Exact(count) => usize::try_from(count).unwrap_or(usize::MAX),
                Count::All => after.free_count(part),
            };
            let (mut own, mut from) = (0, 0);
            while own < most {
                let next = after.positions_for(part).find(|i| *i >= from)?;
                taken.push((next, part, after.take(next, &part.exact)?));
                // A request gets one share of a device at most.
                (own, from) = (own + 1, next + 1);
            }
            if own == 0 {
                return None;
            }
        }
        *self = after;
        Some(taken)
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
