//! The open device requests of a pod's claims.

use super::{
    model::{Claim, Count, ExactRequest},
    node::{NodeDevice, NodeDevices},
    selector::Conditions,
    store::DeviceStore,
};
use crate::mig::Geometry;

/// The open requests of a pod's claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PendingRequests {
    /// One for each request of its claims that are not allocated.
    pub requests: Vec<PendingRequest>,
    /// Some of its claims are allocated: their node selectors bind it to a node already.
    pub bound: bool,
}

/// An open request, by the first of its alternatives. The others are only counted: the scheduler
/// tries them where the first is not available.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingRequest {
    pub exact: ExactRequest,
    /// The readable conditions of class and request.
    pub conditions: Conditions,
    /// Its class does not exist: no device matches.
    pub unknown_class: bool,
    pub alternatives: usize,
}

/// Whether a device matches a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    No,
    /// The readable conditions match; the selectors have more, which only CEL could decide.
    Maybe,
    Yes,
}

/// The open requests of a pod's claims ([`DeviceStore::claims_of`]).
pub fn pending_requests<'a>(
    pools: &DeviceStore,
    claims: impl IntoIterator<Item = &'a Claim>,
) -> PendingRequests {
    let mut ask = PendingRequests::default();
    for claim in claims {
        if claim.allocated.is_some() {
            ask.bound = true;
            continue;
        }
        for request in &claim.requests {
            let Some(first) = request.alternatives.first() else {
                continue;
            };
            ask.requests.push(PendingRequest::new(
                pools,
                first,
                request.alternatives.len(),
            ));
        }
    }
    ask
}

impl PendingRequests {
    /// Adds the request for an extended resource if a class serves it. Returns whether one does.
    /// On nodes whose allocatable has the resource
    /// the scheduler takes that instead.
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

    /// The driver that its selectors require.
    pub fn driver(&self) -> Option<&str> {
        self.conditions.driver()
    }

    /// The MIG profile that it names.
    pub fn profile(&self) -> Option<&str> {
        self.conditions.attribute("profile")
    }

    /// The thousandths of its card that one device takes, where the claim alone determines them: a MIG profile that is the same part of every model that has it,
    /// or whole cards by NVIDIA's attribute `type`. Else only a node's devices
    /// tell: [`Part::milli_on`].
    pub fn milli(&self) -> Option<u16> {
        if let Some(name) = self.profile() {
            let of = |g: &'static Geometry| Some(g.profile(name)?.milli(g));
            let mut parts = Geometry::all().iter().filter_map(of);
            let first = parts.next()?;
            return parts.all(|p| p == first).then_some(first);
        }
        let whole = self.conditions.attribute("type") == Some("gpu");
        (whole && self.exact.capacity.is_empty()).then_some(1000)
    }

    /// The number of devices; 1 for a request for all devices.
    pub fn count(&self) -> u32 {
        match self.exact.count {
            Count::Exact(count) => count,
            Count::All => 1,
        }
    }

    /// Whether a device matches.
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

    /// The thousandths of its card that one device takes on a node: the part of a shared device that the capacity asks for, else the
    /// device's own part of the card.
    pub fn milli_on(&self, devices: &NodeDevices, position: usize) -> u16 {
        let Some(offered) = devices.devices().get(position) else {
            return 0;
        };
        let size = u32::from(devices.milli_of(position));
        let device = offered.device();
        if !device.shared {
            return u16::try_from(size).unwrap_or(1000);
        }
        let driver = &offered.id().pool.driver;
        let shares = device.capacity.iter().filter(|(_, c)| c.value > 0);
        let largest = shares
            .filter_map(|(n, c)| {
                let consumed = c.consumed(self.exact.requested(driver, n))?;
                Some(super::counters::per_mille(consumed, c.value))
            })
            .max();
        let part = size * u32::from(largest.unwrap_or(1000)) / 1000;
        u16::try_from(part).unwrap_or(1000)
    }
}

impl NodeDevices {
    /// How many devices could still be given to each of a part's requests, one
    /// device at a time and without what other parts take.
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

    /// The devices that the scheduler would likely take for an ask: in its order
    /// the first that will do, each request after the other. It is a guess where
    /// selectors say more than can be read, and where constraints between
    /// devices or a later request make the scheduler turn back. `None`: some
    /// request finds too few. The devices are taken from `self`, so that what is
    /// left can be judged.
    pub fn take_likely(&mut self, ask: &PendingRequests) -> Option<Vec<usize>> {
        let mut after = self.clone();
        let mut taken = Vec::new();
        for part in &ask.requests {
            let most = match part.exact.count {
                Count::Exact(count) => usize::try_from(count).unwrap_or(usize::MAX),
                Count::All => after.free_count(part),
            };
            let mut own = Vec::new();
            while own.len() < most {
                // One request does not take two shares of one device only by
                // being asked twice: the allocator goes on behind the last.
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
