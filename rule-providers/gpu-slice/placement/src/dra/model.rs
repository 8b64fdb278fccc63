//! The parts of the DRA API's objects that placement needs. All amounts are in thousandths of their
//! unit.

use std::{collections::BTreeMap, sync::Arc};

use tautline_core::model::{AffinityTerm, Taint, Toleration};

/// Amounts by the name of the capacity or counter, in thousandths: one byte is 1000.
pub type Amounts = BTreeMap<Box<str>, i64>;

/// A driver's pool of devices. Different drivers may have pools of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolId {
    /// Name of the driver, such as `gpu.nvidia.com`.
    pub driver: Arc<str>,
    /// Name of the pool; many drivers use the node's name.
    pub pool: Arc<str>,
}

/// A device, unique in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId {
    /// Pool that publishes the device.
    pub pool: PoolId,
    /// Name of the device, unique in its pool.
    pub device: Arc<str>,
}

/// A `ResourceSlice`: all or some of a pool's devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// Name of the API object.
    pub name: Arc<str>,
    /// Pool that the slice belongs to.
    pub id: PoolId,
    /// Generation of the pool; only slices of its highest generation count.
    pub generation: i64,
    /// Number of slices that make the pool complete (`resourceSliceCount`).
    pub slices: i64,
    /// Nodes that can use the slice's devices.
    pub access: Access,
    /// The pool's counters with their totals (`sharedCounters`).
    pub counters: Vec<CounterSet>,
    /// Devices in the published order, in which the allocator takes them.
    pub devices: Vec<Device>,
}

/// The nodes that can use a device.
#[derive(Clone, Debug, PartialEq)]
pub enum Access {
    /// The node of this name (`nodeName`).
    Node(Arc<str>),
    /// Nodes that match at least one term (`nodeSelector`).
    Nodes(Vec<AffinityTerm>),
    /// Every node of the cluster (`allNodes`).
    All,
    /// Each device of the slice has its own access (`perDeviceNodeSelection`).
    PerDevice,
}

/// Counters of a pool, or their consumption by a device (KEP-4815).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterSet {
    /// Name of the set, unique in its pool.
    pub name: Box<str>,
    /// Totals of the pool, or the amounts that a device consumes.
    pub counters: Amounts,
}

/// A device of a slice: a card, a part of one, or a possible MIG instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// Name of the device, unique in its pool.
    pub name: Arc<str>,
    /// Nodes that can use the device. Used only in slices with [`Access::PerDevice`], where `None`
    /// means no node.
    pub access: Option<Access>,
    /// Attributes that are plain strings by name, without the driver's own domain.
    pub attributes: BTreeMap<Box<str>, Box<str>>,
    /// Attributes that are integers by name, without the driver's own domain.
    pub numbers: BTreeMap<Box<str>, i64>,
    /// Capacities by name, without the driver's own domain.
    pub capacity: BTreeMap<Box<str>, Capacity>,
    /// Amounts that the device takes from the pool's counters while it is allocated.
    pub consumes: Vec<CounterSet>,
    /// True if several requests may each have a part of the device (`allowMultipleAllocations`,
    /// KEP-5075).
    pub shared: bool,
    /// Taints that the driver publishes (KEP-5055).
    pub taints: Vec<Taint>,
    /// True if binding waits for conditions of the device; the allocator takes pools with such
    /// devices last.
    pub binding_conditions: bool,
}

impl Device {
    pub(super) fn text(&self, attribute: &str) -> Option<&str> {
        self.attributes.get(attribute).map(AsRef::as_ref)
    }
}

/// An amount of something that a device has, such as memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Total amount, in thousandths of the unit.
    pub value: i64,
    /// Amounts that a request may have; `None`: any amount.
    pub policy: Option<RequestPolicy>,
}

/// The amounts of a capacity that requests for a shared device may have (KEP-5075).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestPolicy {
    /// Consumption of a request without an amount; `None`: the whole capacity.
    pub default: Option<i64>,
    /// Minimum, maximum and step of the amounts.
    pub range: Option<(i64, Option<i64>, Option<i64>)>,
    /// Possible amounts, ascending; empty: any amount. A range takes precedence.
    pub values: Vec<i64>,
}

impl Capacity {
    /// The amount that a request consumes, rounded up by the policy; `None`: the policy forbids it.
    /// A request without an amount consumes the policy's default, or else the whole capacity.
    pub fn consumed(&self, requested: Option<i64>) -> Option<i64> {
        let policy = self.policy.as_ref();
        let Some(requested) = requested else {
            let default = policy.and_then(|p| p.default);
            return Some(default.unwrap_or(self.value).max(0));
        };
        let requested = requested.max(0);
        let Some(policy) = policy else {
            return Some(requested);
        };
        if let Some((least, most, step)) = policy.range {
            let over = requested.saturating_sub(least).max(0);
            let rounded = match step {
                Some(step) if step > 0 => {
                    let steps = over / step + i64::from(over % step != 0);
                    steps.saturating_mul(step)
                }
                _ => over,
            };
            let amount = least.saturating_add(rounded);
            return most.is_none_or(|m| amount <= m).then_some(amount);
        }
        if policy.values.is_empty() {
            return Some(requested);
        }
        policy.values.iter().copied().find(|v| *v >= requested)
    }
}

/// A `ResourceClaim`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// Namespace of the claim and of its pods.
    pub namespace: Arc<str>,
    /// Name of the API object.
    pub name: Arc<str>,
    /// Requests in the order of the claim's specification. Each has its alternatives, the preferred
    /// first (`firstAvailable`); one for `exactly`.
    pub requests: Vec<Vec<ExactRequest>>,
    /// Devices of all requests together; `None`: the claim is not allocated yet.
    pub allocated: Option<Vec<Allocation>>,
    /// Terms of which one must match the nodes of the claim's pods, because the devices are
    /// allocated there; `None`: any node.
    pub nodes: Option<Vec<AffinityTerm>>,
    /// UIDs of the pods that may use the claim.
    pub reserved_for: Vec<Box<str>>,
    /// UID of the pod from whose template the claim is.
    pub owner: Option<Box<str>>,
}

/// A request for devices of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExactRequest {
    /// Name of the `DeviceClass`.
    pub class: Box<str>,
    /// Number of devices.
    pub count: Count,
    /// CEL expressions; a device must meet them all, and those of its class.
    pub selectors: Vec<Box<str>>,
    /// Minimum capacities of each device; for a shared device, the amounts to consume.
    pub capacity: Amounts,
    /// True for admin access (KEP-5018): devices in use serve it as well, and it takes nothing from
    /// them.
    pub admin: bool,
    /// Tolerations of taints that do not keep devices from the request.
    pub tolerations: Vec<Toleration>,
}

impl ExactRequest {
    pub(super) fn requested(&self, driver: &str, capacity: &str) -> Option<i64> {
        let mut all = self.capacity.iter();
        let found = all.find(|(n, _)| own_name(driver, n) == capacity)?;
        Some(*found.1)
    }
}

/// Returns the name without the driver's domain: names without a domain belong to it, and it may
/// also be written out.
pub fn own_name<'a>(driver: &str, name: &'a str) -> &'a str {
    let own = name.strip_prefix(driver).and_then(|n| n.strip_prefix('/'));
    own.unwrap_or(name)
}

/// The number of devices for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Exactly this number.
    Exact(u32),
    /// All devices of the node that match.
    All,
}

impl Default for Count {
    fn default() -> Self {
        Self::Exact(1)
    }
}

/// A device that is allocated to a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// The allocated device.
    pub device: DeviceId,
    /// True for admin access, which takes nothing from the device.
    pub admin: bool,
    /// ID of the share of a shared device; `None`: the claim has the whole device.
    pub share: Option<Box<str>>,
    /// Capacity that the share takes; empty for a whole device.
    pub consumed: Amounts,
    /// Tolerations that the request had when it was allocated.
    pub tolerations: Vec<Toleration>,
}

/// A `DeviceClass`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Name of the API object.
    pub name: Box<str>,
    /// CEL expressions; a device of the class meets them all.
    pub selectors: Vec<Box<str>>,
    /// Creation time in seconds since 1970; 0: unknown.
    pub created_unix: i64,
    /// Extended resource by which pods may request the class's devices (KEP-5004).
    pub extended_resource: Option<Box<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_rounded_up_as_policies_have_it() {
        let whole = Capacity {
            value: 80_000,
            policy: None,
        };
        assert_eq!(whole.consumed(None), Some(80_000));
        assert_eq!(whole.consumed(Some(7)), Some(7));
        let policy = |p: RequestPolicy| Capacity {
            value: 80_000,
            policy: Some(p),
        };
        let range = policy(RequestPolicy {
            default: Some(10_000),
            range: Some((5_000, Some(40_000), Some(5_000))),
            values: Vec::new(),
        });
        for (requested, want) in [
            (None, Some(10_000)),
            (Some(0), Some(5_000)),
            (Some(5_001), Some(10_000)),
            (Some(40_000), Some(40_000)),
            (Some(40_001), None),
            (Some(i64::MAX), None),
        ] {
            assert_eq!(range.consumed(requested), want, "{requested:?}");
        }
        let values = policy(RequestPolicy {
            default: Some(20_000),
            range: None,
            values: vec![10_000, 20_000, 40_000],
        });
        assert_eq!(values.consumed(Some(11_000)), Some(20_000));
        assert_eq!(values.consumed(Some(41_000)), None);
    }
}
