//! The relevant parts of the API's objects. All amounts are thousandths of their unit.

use std::{collections::BTreeMap, fmt, sync::Arc};

use tautline_core::model::{AffinityTerm, Taint, Toleration};

pub type Amounts = BTreeMap<Box<str>, i64>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolId {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId {
    pub pool: PoolId,
    pub device: Arc<str>,
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.driver, self.pool)
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.device)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    pub name: Arc<str>,
    pub id: PoolId,
    /// Only slices of a pool's highest generation count.
    pub generation: i64,
    pub slices: i64,
    pub access: Access,
    pub counters: Vec<CounterSet>,
    pub devices: Vec<Device>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Access {
    Node(Arc<str>),
    Nodes(Vec<AffinityTerm>),
    All,
    PerDevice,
}

/// Counters of a pool, or their consumption by a device (KEP-4815).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterSet {
    pub name: Box<str>,
    pub counters: Amounts,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    pub name: Arc<str>,
    pub access: Option<Access>,
    /// By name, without the driver's own domain.
    pub attributes: BTreeMap<Box<str>, Attribute>,
    pub capacity: BTreeMap<Box<str>, Capacity>,
    pub consumes: Vec<CounterSet>,
    /// Several requests may each have a part of it (`allowMultipleAllocations`, KEP-5075).
    pub shared: bool,
    pub taints: Vec<Taint>,
    /// Binding waits for conditions; the allocator takes such pools last.
    pub binding_conditions: bool,
}

impl Device {
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.attributes.get(name) {
            Some(Attribute::Text(text) | Attribute::Version(text)) => Some(text),
            _ => None,
        }
    }
}

/// Lists, an alpha of 1.36, are not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    Text(String),
    Version(String),
    Int(i64),
    Bool(bool),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub value: i64,
    pub policy: Option<RequestPolicy>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestPolicy {
    pub default: Option<i64>,
    /// Minimum, maximum and step.
    pub range: Option<(i64, Option<i64>, Option<i64>)>,
    pub values: Vec<i64>,
}

impl Capacity {
    /// Rounded up by the policy; `None`: forbidden. Without a request: its default, else all.
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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub requests: Vec<ClaimRequest>,
    pub allocated: Option<Vec<Allocation>>,
    pub reserved_for: Vec<Box<str>>,
    /// UID of the pod whose template it is from.
    pub owner: Option<Box<str>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimRequest {
    pub name: Box<str>,
    pub alternatives: Vec<ExactRequest>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExactRequest {
    pub class: Box<str>,
    pub count: Count,
    pub selectors: Vec<Box<str>>,
    /// Minimum capacity of each device; of a shared one, the consumption.
    pub capacity: Amounts,
    pub admin: bool,
    pub tolerations: Vec<Toleration>,
}

impl ExactRequest {
    pub fn requested(&self, driver: &str, capacity: &str) -> Option<i64> {
        let mut all = self.capacity.iter();
        let found = all.find(|(n, _)| own_name(driver, n) == capacity)?;
        Some(*found.1)
    }
}

pub(super) fn own_name<'a>(driver: &str, name: &'a str) -> &'a str {
    let own = name.strip_prefix(driver).and_then(|n| n.strip_prefix('/'));
    own.unwrap_or(name)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    Exact(u32),
    All,
}

impl Default for Count {
    fn default() -> Self {
        Self::Exact(1)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    pub request: Box<str>,
    pub device: DeviceId,
    /// Takes nothing.
    pub admin: bool,
    pub share: Option<Box<str>>,
    pub consumed: Amounts,
    pub tolerations: Vec<Toleration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub name: Box<str>,
    pub selectors: Vec<Box<str>>,
    pub created_unix: i64,
    /// The resource by which pods may request its devices (KEP-5004).
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
