//! `resource.k8s.io/v1`: slices, claims and classes, and the claims of pods.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{NodeSelector, Pod},
        resource::v1::{
            self as resource, CapacityRequestPolicy, CapacityRequirements, Counter, DeviceClass,
            DeviceRequest, DeviceRequestAllocationResult, DeviceSelector, DeviceToleration,
            ResourceClaim, ResourceSlice,
        },
    },
    apimachinery::pkg::api::resource::Quantity,
};
use tautline_core::{
    model::{Taint, Toleration},
    quantity,
};
use tautline_gpu::dra::{
    Access, Allocation, Amounts, Attribute, Capacity, Claim, Class, Count, CounterSet, Device,
    DeviceId, Policy, PoolId, Request, Slice, Wanted,
};

use super::{ConvertError, bad, name, namespace, pod};

/// The claims that a pod names or that were made for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodClaims {
    /// Names of claims in its namespace that exist already.
    pub names: Vec<String>,
    /// Claims of its spec that were not made yet from their template.
    pub to_come: usize,
}

/// The claims of a pod by name, whether or not it is bound. Claims made from
/// templates, and for extended resources, have generated names that its status
/// records.
pub fn pod_claims(pod: &Pod) -> PodClaims {
    let status = pod.status.as_ref();
    let made: BTreeMap<&str, Option<&String>> = status
        .and_then(|s| s.resource_claim_statuses.as_ref())
        .into_iter()
        .flatten()
        .map(|s| (s.name.as_str(), s.resource_claim_name.as_ref()))
        .collect();
    let mut out = PodClaims::default();
    let spec = pod.spec.as_ref();
    let of_spec = spec.and_then(|s| s.resource_claims.as_ref());
    for claim in of_spec.into_iter().flatten() {
        let found = made.get(claim.name.as_str());
        match (&claim.resource_claim_name, found) {
            (Some(name), _) => out.names.push(name.clone()),
            (None, Some(Some(name))) => out.names.push((*name).clone()),
            // The controller found that this one needs no claim.
            (None, Some(None)) => {}
            (None, None) => out.to_come += 1,
        }
    }
    let extended = status.and_then(|s| s.extended_resource_claim_status.as_ref());
    out.names
        .extend(extended.map(|s| s.resource_claim_name.clone()));
    out
}

/// A ResourceSlice.
///
/// # Errors
/// An amount that is no quantity.
pub fn slice(slice: &ResourceSlice) -> Result<Slice, ConvertError> {
    let spec = &slice.spec;
    let access = access(
        spec.node_name.as_deref(),
        spec.node_selector.as_ref(),
        spec.all_nodes,
    );
    let counters = spec.shared_counters.iter().flatten().enumerate();
    let devices = spec.devices.iter().flatten().enumerate();
    Ok(Slice {
        name: name(&slice.metadata),
        id: pool_id(&spec.driver, &spec.pool.name),
        generation: spec.pool.generation,
        slices: spec.pool.resource_slice_count,
        access: access.unwrap_or(Access::PerDevice),
        counters: counters
            .map(|(i, s)| counter_set(&format!("spec.sharedCounters[{i}]"), &s.name, &s.counters))
            .collect::<Result<_, _>>()?,
        devices: devices
            .map(|(i, d)| device(&format!("spec.devices[{i}]"), &spec.driver, d))
            .collect::<Result<_, _>>()?,
    })
}

fn pool_id(driver: &str, pool: &str) -> PoolId {
    PoolId {
        driver: driver.into(),
        pool: pool.into(),
    }
}

fn access(
    node: Option<&str>,
    selector: Option<&NodeSelector>,
    all: Option<bool>,
) -> Option<Access> {
    let node = node.filter(|n| !n.is_empty());
    let terms = |s: &NodeSelector| s.node_selector_terms.iter().map(pod::term).collect();
    node.map(|n| Access::Node(n.into()))
        .or_else(|| selector.map(|s| Access::Nodes(terms(s))))
        .or_else(|| (all == Some(true)).then_some(Access::All))
}

fn device(field: &str, driver: &str, device: &resource::Device) -> Result<Device, ConvertError> {
    // A name without a domain is in the driver's, which may also be written.
    let own = |name: &str| -> Box<str> {
        let plain = name.strip_prefix(driver).and_then(|n| n.strip_prefix('/'));
        plain.unwrap_or(name).into()
    };
    let consumes = device.consumes_counters.iter().flatten().enumerate();
    let capacity = device.capacity.iter().flatten().map(|(n, c)| {
        let field = format!("{field}.capacity[{n}]");
        Ok((own(n), capacity(&field, c)?))
    });
    let attributes = device.attributes.iter().flatten();
    let taint = |t: &resource::DeviceTaint| Taint {
        key: t.key.clone(),
        value: t.value.clone().unwrap_or_default(),
        effect: t.effect.clone(),
    };
    let conditions = device.binding_conditions.as_ref();
    Ok(Device {
        name: device.name.as_str().into(),
        access: access(
            device.node_name.as_deref(),
            device.node_selector.as_ref(),
            device.all_nodes,
        ),
        attributes: attributes
            .filter_map(|(n, a)| Some((own(n), attribute(a)?)))
            .collect(),
        capacity: capacity.collect::<Result<_, ConvertError>>()?,
        consumes: consumes
            .map(|(i, c)| {
                let field = format!("{field}.consumesCounters[{i}]");
                counter_set(&field, &c.counter_set, &c.counters)
            })
            .collect::<Result<_, _>>()?,
        shared: device.allow_multiple_allocations == Some(true),
        taints: device.taints.iter().flatten().map(taint).collect(),
        binding_conditions: conditions.is_some_and(|c| !c.is_empty()),
    })
}

/// `None` for lists and for what later versions may add.
fn attribute(attribute: &resource::DeviceAttribute) -> Option<Attribute> {
    let text = attribute.string.clone().map(Attribute::Text);
    text.or_else(|| attribute.version.clone().map(Attribute::Version))
        .or_else(|| attribute.int.map(Attribute::Int))
        .or_else(|| attribute.bool.map(Attribute::Bool))
}

fn capacity(field: &str, of: &resource::DeviceCapacity) -> Result<Capacity, ConvertError> {
    Ok(Capacity {
        value: amount(&format!("{field}.value"), &of.value)?,
        policy: of
            .request_policy
            .as_ref()
            .map(|p| policy(&format!("{field}.requestPolicy"), p))
            .transpose()?,
    })
}

fn policy(field: &str, policy: &CapacityRequestPolicy) -> Result<Policy, ConvertError> {
    let some = |name: &str, q: Option<&Quantity>| {
        q.map(|q| amount(&format!("{field}.{name}"), q)).transpose()
    };
    let range = policy.valid_range.as_ref();
    let values = policy.valid_values.iter().flatten();
    Ok(Policy {
        default: some("default", policy.default.as_ref())?,
        range: range
            .map(|r| {
                Ok((
                    amount(&format!("{field}.validRange.min"), &r.min)?,
                    some("validRange.max", r.max.as_ref())?,
                    some("validRange.step", r.step.as_ref())?,
                ))
            })
            .transpose()?,
        values: values
            .map(|v| amount(&format!("{field}.validValues"), v))
            .collect::<Result<_, _>>()?,
    })
}

fn counter_set(
    field: &str,
    name: &str,
    counters: &BTreeMap<String, Counter>,
) -> Result<CounterSet, ConvertError> {
    let amount = |(n, c): (&String, &Counter)| {
        let field = format!("{field}.counters[{n}].value");
        Ok((n.as_str().into(), amount(&field, &c.value)?))
    };
    Ok(CounterSet {
        name: name.into(),
        counters: counters.iter().map(amount).collect::<Result<_, _>>()?,
    })
}

/// A ResourceClaim.
///
/// # Errors
/// An amount that is no quantity, or a count mode that is not known.
pub fn claim(claim: &ResourceClaim) -> Result<Claim, ConvertError> {
    let status = claim.status.as_ref();
    let allocation = status.and_then(|s| s.allocation.as_ref());
    let requests = claim
        .spec
        .devices
        .iter()
        .flat_map(|d| &d.requests)
        .flatten();
    let results = allocation.map(|a| {
        let results = a.devices.iter().flat_map(|d| &d.results).flatten();
        results.enumerate().map(|(i, r)| held(i, r)).collect()
    });
    let pods = status.and_then(|s| s.reserved_for.as_ref());
    let owners = claim.metadata.owner_references.iter().flatten();
    Ok(Claim {
        namespace: namespace(&claim.metadata),
        name: name(&claim.metadata),
        requests: requests
            .enumerate()
            .map(|(i, r)| request(&format!("spec.devices.requests[{i}]"), r))
            .collect::<Result<_, _>>()?,
        allocated: results.transpose()?,
        reserved_for: pods
            .into_iter()
            .flatten()
            .filter(|r| r.resource == "pods" && r.api_group.as_deref().unwrap_or("").is_empty())
            .map(|r| r.uid.as_str().into())
            .collect(),
        owner: owners
            .into_iter()
            .find(|o| o.controller == Some(true) && o.kind == "Pod")
            .map(|o| o.uid.as_str().into()),
    })
}

fn held(i: usize, result: &DeviceRequestAllocationResult) -> Result<Allocation, ConvertError> {
    let field = format!("status.allocation.devices.results[{i}].consumedCapacity");
    Ok(Allocation {
        request: result.request.as_str().into(),
        device: DeviceId {
            pool: pool_id(&result.driver, &result.pool),
            device: result.device.as_str().into(),
        },
        admin: result.admin_access == Some(true),
        share: result.share_id.as_deref().map(Into::into),
        consumed: amounts(&field, result.consumed_capacity.as_ref(), &result.driver)?,
        tolerations: tolerations(result.tolerations.as_deref()),
    })
}

fn request(field: &str, request: &DeviceRequest) -> Result<Request, ConvertError> {
    let mut alternatives = Vec::new();
    if let Some(r) = &request.exactly {
        let mut wanted = wanted(
            &format!("{field}.exactly"),
            &r.device_class_name,
            (r.allocation_mode.as_deref(), r.count),
            r.selectors.as_deref(),
            r.capacity.as_ref(),
        )?;
        wanted.admin = r.admin_access == Some(true);
        wanted.tolerations = tolerations(r.tolerations.as_deref());
        alternatives.push(wanted);
    }
    for (i, r) in request.first_available.iter().flatten().enumerate() {
        let mut wanted = wanted(
            &format!("{field}.firstAvailable[{i}]"),
            &r.device_class_name,
            (r.allocation_mode.as_deref(), r.count),
            r.selectors.as_deref(),
            r.capacity.as_ref(),
        )?;
        wanted.tolerations = tolerations(r.tolerations.as_deref());
        alternatives.push(wanted);
    }
    Ok(Request {
        name: request.name.as_str().into(),
        alternatives,
    })
}

fn wanted(
    field: &str,
    class: &str,
    (mode, count): (Option<&str>, Option<i64>),
    selectors: Option<&[DeviceSelector]>,
    capacity: Option<&CapacityRequirements>,
) -> Result<Wanted, ConvertError> {
    let count = match mode {
        None | Some("" | "ExactCount") => {
            Count::Exact(u32::try_from(count.unwrap_or(1)).unwrap_or(u32::MAX))
        }
        Some("All") => Count::All,
        Some(other) => {
            let what = format!("{other:?} is not known; use ExactCount or All");
            return Err(bad(format!("{field}.allocationMode"), what));
        }
    };
    let cel = selectors.into_iter().flatten();
    let field = format!("{field}.capacity.requests");
    Ok(Wanted {
        class: class.into(),
        count,
        selectors: cel
            .filter_map(|s| Some(s.cel.as_ref()?.expression.as_str().into()))
            .collect(),
        capacity: amounts(&field, capacity.and_then(|c| c.requests.as_ref()), "")?,
        admin: false,
        tolerations: Vec::new(),
    })
}

fn tolerations(list: Option<&[DeviceToleration]>) -> Vec<Toleration> {
    let one = |t: &DeviceToleration| Toleration {
        key: t.key.clone().filter(|k| !k.is_empty()),
        value: match t.operator.as_deref() {
            Some("Exists") => None,
            _ => Some(t.value.clone().unwrap_or_default()),
        },
        effect: t.effect.clone().filter(|e| !e.is_empty()),
    };
    list.into_iter().flatten().map(one).collect()
}

/// A DeviceClass.
pub fn class(class: &DeviceClass) -> Class {
    let selectors = class.spec.selectors.iter().flatten();
    Class {
        name: (*name(&class.metadata)).into(),
        selectors: selectors
            .filter_map(|s| Some(s.cel.as_ref()?.expression.as_str().into()))
            .collect(),
        extended_resource: class.spec.extended_resource_name.as_deref().map(Into::into),
    }
}

fn amounts(
    field: &str,
    map: Option<&BTreeMap<String, Quantity>>,
    driver: &str,
) -> Result<Amounts, ConvertError> {
    let one = |(n, q): (&String, &Quantity)| {
        let own = n.strip_prefix(driver).and_then(|n| n.strip_prefix('/'));
        let own = own.filter(|_| !driver.is_empty()).unwrap_or(n);
        Ok((own.into(), amount(&format!("{field}[{n}]"), q)?))
    };
    map.into_iter().flatten().map(one).collect()
}

fn amount(field: &str, quantity: &Quantity) -> Result<i64, ConvertError> {
    quantity::parse_milli(&quantity.0).map_err(|e| bad(field, e))
}

#[cfg(test)]
#[path = "dra_tests.rs"]
mod tests;
