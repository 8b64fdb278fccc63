use tautline_core::{model::Taint, node_filter};

use super::{
    model::{Allocation, Device},
    pool::PoolError,
    store::DeviceStore,
};

/// Reasons why an allocated device does not serve its claim any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceFault {
    /// The driver does not publish the device any more.
    #[error("device is not published any more")]
    Gone,
    /// The device has a `NoExecute` taint with this key that the allocation does not tolerate.
    #[error("device has taint {0}, effect NoExecute")]
    Tainted(Box<str>),
    /// Claims hold more of the device, or of its pool's counters, than there is.
    #[error("device is given to more claims than it can serve")]
    OverCommitted,
    /// The device's pool cannot be used, so the state of the device is unknown.
    #[error("its pool is not usable: {0}")]
    Pool(PoolError),
}

impl DeviceStore {
    /// The fault of an allocated device; `None`: the device serves its claim. Tolerated taints are
    /// not faults.
    pub fn fault(&self, held: &Allocation) -> Option<DeviceFault> {
        let id = &held.device.pool;
        let pool = match self.pools.get(id) {
            None => return Some(DeviceFault::Gone),
            Some(Err(why)) => return Some(DeviceFault::Pool(why.clone())),
            Some(Ok(pool)) => pool,
        };
        let devices = || pool.slices.iter().flat_map(|s| &s.devices);
        let Some(device) = devices().find(|d| d.name == held.device.device) else {
            return Some(DeviceFault::Gone);
        };
        let evicts = |t: &&Taint| {
            t.effect == "NoExecute" && !node_filter::is_tolerated(t, &held.tolerations)
        };
        if let Some(taint) = device.taints.iter().find(evicts) {
            return Some(DeviceFault::Tainted(taint.key.as_str().into()));
        }
        let mut counters = pool.counters.clone();
        for d in devices().filter(|d| !self.holds(id, d).is_empty()) {
            counters.charge(&d.consumes);
        }
        let over_device = exceeded(device, self.holds(id, device));
        let over_card = counters.overdrawn() && !device.consumes.is_empty();
        (over_device || over_card).then_some(DeviceFault::OverCommitted)
    }
}

fn exceeded(device: &Device, holds: &[Allocation]) -> bool {
    let whole = holds.iter().filter(|h| h.share.is_none()).count();
    let over = |name: &str, value: i64| {
        let used = holds.iter().filter_map(|h| h.consumed.get(name));
        used.fold(0i64, |sum, v| sum.saturating_add(*v)) > value
    };
    whole > 1
        || (whole > 0 && holds.len() > 1)
        || device.capacity.iter().any(|(n, c)| over(n, c.value))
}
