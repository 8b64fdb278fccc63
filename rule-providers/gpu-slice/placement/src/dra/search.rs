//! The search for devices that meet all requests of a pod. Like the scheduler's allocator, it takes
//! the first devices with which all requests can be met, and tries the alternatives of a request in
//! their order.

use std::ptr;

use super::{
    model::{Allocation, Amounts, Count},
    node::{NodeDevice, NodeDevices},
    request::{Alternative, PendingRequest},
};

/// The maximum number of devices that a request gets (`AllocationResultsMaxSize`, Kubernetes 1.36).
const MAX_DEVICES_OF_REQUEST: usize = 32;
/// The number of devices that a search tries on a node before it gives up: a pod's author chooses
/// the requests, and all nodes are searched.
const MAX_TRIES: usize = 256;
/// The number of a pod's requests up to which equal ones are counted.
const MAX_COMPARED_REQUESTS: usize = 32;
/// The ID of the shares that a plan allocates, in place of a UID.
const PLANNED_SHARE: &str = "planned";

/// The reason why a search finds no devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceShortage {
    /// The node has no choice of devices that meets all requests.
    Certain,
    /// Selectors cannot be read, or there are too many choices.
    Uncertain,
}

/// A taken device: its position, what it was taken for, and the amounts that this consumes.
type Taken<'a> = (usize, &'a Alternative, Amounts);

impl NodeDevices {
    /// Takes the devices that the scheduler likely chooses, and returns their positions. Unreadable
    /// selectors and constraints between devices may lead to another choice. If it fails, nothing is
    /// taken.
    pub fn take_likely(
        &mut self,
        pending: &[PendingRequest],
    ) -> Result<Vec<usize>, DeviceShortage> {
        let taken = self.take_all(pending)?.into_iter();
        Ok(taken.map(|(position, ..)| position).collect())
    }

    /// Takes the devices as [`Self::take_likely`] does, and returns the allocations of each request.
    pub fn allocate(
        &mut self,
        pending: &[PendingRequest],
    ) -> Result<Vec<Vec<Allocation>>, DeviceShortage> {
        let taken = self.take_all(pending)?;
        let allocation = |(position, of, consumed): &Taken<'_>| {
            let offered = &self.devices()[*position];
            let is_shared = offered.device().shared;
            Allocation {
                device: offered.id().clone(),
                admin: of.exact.admin,
                share: is_shared.then(|| PLANNED_SHARE.into()),
                consumed: if is_shared {
                    consumed.clone()
                } else {
                    Amounts::new()
                },
                tolerations: of.exact.tolerations.clone(),
            }
        };
        let of_request = |request: &PendingRequest| {
            let alternatives = request.alternatives.iter();
            let own = |(_, of, _): &&Taken<'_>| alternatives.clone().any(|a| ptr::eq(a, *of));
            let own = taken.iter().filter(own);
            own.map(allocation).collect()
        };
        Ok(pending.iter().map(of_request).collect())
    }

    fn take_all<'a>(
        &mut self,
        pending: &'a [PendingRequest],
    ) -> Result<Vec<Taken<'a>>, DeviceShortage> {
        if pending.len() <= MAX_COMPARED_REQUESTS && self.has_too_few(pending) {
            return Err(DeviceShortage::Certain);
        }
        // kube-scheduler refuses all alternatives if the class of one does not exist, or if one asks
        // for all devices while a pool is incomplete.
        let alternatives = || pending.iter().flat_map(|request| &request.alternatives);
        let asks_for_all = alternatives().any(|of| of.exact.count == Count::All);
        if (self.lacks_pool && asks_for_all) || alternatives().any(|of| of.unknown_class) {
            return Err(DeviceShortage::Certain);
        }
        let before = if asks_for_all {
            self.clone()
        } else {
            Self::default()
        };
        let mut search = Search {
            before,
            devices: self,
            taken: Vec::new(),
            tries: 0,
            is_certain: true,
        };
        match (search.requests(pending), search.is_certain) {
            (true, _) => Ok(search.taken),
            (false, true) => Err(DeviceShortage::Certain),
            (false, false) => Err(DeviceShortage::Uncertain),
        }
    }

    /// Returns whether equal requests for a number of devices need more than are available. It saves
    /// the search from trying all orders of such requests.
    fn has_too_few(&self, pending: &[PendingRequest]) -> bool {
        pending.iter().any(|request| {
            let [of] = &request.alternatives[..] else {
                return false;
            };
            let equal = pending.iter().filter(|other| *other == request);
            let needed: usize = equal.map(|request| request.count() as usize).sum();
            let available = self.positions_for(of).map(|at| &self.devices()[at]);
            let available: Vec<&NodeDevice> = available.collect();
            let is_number = of.exact.count != Count::All && !of.exact.admin;
            let is_exclusive = available.iter().all(|offered| !offered.device().shared);
            is_number && is_exclusive && available.len() < needed
        })
    }

    fn positions_for<'a>(&'a self, of: &'a Alternative) -> impl Iterator<Item = usize> + 'a {
        let all = self.devices().iter().enumerate();
        all.filter(|(i, o)| of.matches(o) && self.is_available(*i, &of.exact))
            .map(|(i, _)| i)
    }

    /// Returns the positions of the devices that a request for all devices gets, in use or not.
    /// `None`: its selectors cannot be read.
    fn all_for(&self, of: &Alternative) -> Option<Vec<usize>> {
        if !of.conditions.are_complete {
            return None;
        }
        let all = self.devices().iter().enumerate();
        let wanted = all.filter(|(_, o)| of.matches(o) && Self::capacity(o, &of.exact).is_some());
        Some(wanted.map(|(i, _)| i).collect())
    }

    /// Returns whether a request for all devices can have them. It gets none of them if one is not
    /// available.
    fn can_take_all(&self, of: &Alternative, all: &[usize]) -> bool {
        let mut positions = all.iter();
        !all.is_empty() && positions.all(|i| self.is_available(*i, &of.exact))
    }
}

struct Search<'n, 'a> {
    devices: &'n mut NodeDevices,
    /// The devices before the search, if a request asks for all of them: that means all with enough
    /// capacity then.
    before: NodeDevices,
    taken: Vec<Taken<'a>>,
    tries: usize,
    /// False if a failure may be due to what the search does not know.
    is_certain: bool,
}

impl<'a> Search<'_, 'a> {
    /// Takes devices for all requests. If it returns false, it has taken none.
    fn requests(&mut self, pending: &'a [PendingRequest]) -> bool {
        let Some((first, rest)) = pending.split_first() else {
            return true;
        };
        let mut alternatives = first.alternatives.iter();
        alternatives.any(|of| match of.exact.count {
            Count::Exact(count) if count as usize > MAX_DEVICES_OF_REQUEST => false,
            Count::Exact(count) => self.exactly(of, count as usize, 0, rest),
            Count::All => self.all(of, rest),
        })
    }

    /// Takes this number of devices, from a position on, and goes on with the rest. A request gets
    /// one share of a device at most.
    fn exactly(
        &mut self,
        of: &'a Alternative,
        count: usize,
        from: usize,
        rest: &'a [PendingRequest],
    ) -> bool {
        let Some(more) = count.checked_sub(1) else {
            return self.requests(rest);
        };
        let positions = self.devices.positions_for(of).filter(|i| *i >= from);
        let positions: Vec<usize> = positions.collect();
        let first = positions.len().saturating_sub(more);
        let mut first = positions.iter().take(first);
        first.any(|at| self.with(*at, of, |s| s.exactly(of, more, at + 1, rest)))
    }

    fn all(&mut self, of: &'a Alternative, rest: &'a [PendingRequest]) -> bool {
        let positions = match self.before.all_for(of) {
            Some(all) if !self.devices.can_take_all(of, &all) => return false,
            Some(all) => all,
            None => {
                let free: Vec<usize> = self.devices.positions_for(of).collect();
                // Some of them, or devices in use, may not be wanted.
                self.is_certain &= free.is_empty();
                free
            }
        };
        let is_possible = (1..=MAX_DEVICES_OF_REQUEST).contains(&positions.len());
        is_possible && self.each(of, &positions, rest)
    }

    fn each(&mut self, of: &'a Alternative, all: &[usize], rest: &'a [PendingRequest]) -> bool {
        match all.split_first() {
            None => self.requests(rest),
            Some((at, more)) => self.with(*at, of, |s| s.each(of, more, rest)),
        }
    }

    /// Takes a device and goes on; the device is free again if that fails.
    fn with(
        &mut self,
        at: usize,
        of: &'a Alternative,
        go_on: impl FnOnce(&mut Self) -> bool,
    ) -> bool {
        if self.tries == MAX_TRIES {
            self.is_certain = false;
            return false;
        }
        self.tries += 1;
        let device = self.devices.devices[at].clone();
        let counters = self.devices.counters[device.pool].clone();
        let Some(consumed) = self.devices.take(at, &of.exact) else {
            return false;
        };
        self.taken.push((at, of, consumed));
        if go_on(self) {
            return true;
        }
        self.taken.pop();
        self.devices.counters[device.pool] = counters;
        self.devices.devices[at] = device;
        false
    }
}
