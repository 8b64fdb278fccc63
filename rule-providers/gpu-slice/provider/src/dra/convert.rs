//! Conversions of the objects of `resource.k8s.io/v1`.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::NodeSelector,
        resource::v1::{
            self as resource, CapacityRequestPolicy, Counter, DeviceClass, DeviceRequest,
            DeviceRequestAllocationResult, DeviceSelector, DeviceToleration, ExactDeviceRequest,
            ResourceClaim, ResourceSlice,
        },
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use tautline_api::convert::{ConvertError, affinity_term};
use tautline_core::{
    model::{Taint, Toleration, TolerationValue},
    quantity,
};
use tautline_gpu_placement::dra::{
    Access, Allocation, Amounts, Attribute, Capacity, Claim, Class, Count, CounterSet, Device,
    DeviceId, ExactRequest, PoolId, RequestPolicy, Slice, own_name,
};

/// Converts a class: its CEL selectors, and the extended resource that requests its devices.
pub fn device_class(class: &DeviceClass) -> Class {
    let created = class.metadata.creation_timestamp.as_ref();
    Class {
        name: class.metadata.name.as_deref().unwrap_or_default().into(),
        created_unix: created.map_or(0, |t| t.0.as_second()),
        selectors: expressions(class.spec.selectors.as_deref()),
        extended_resource: class.spec.extended_resource_name.as_deref().map(Into::into),
    }
}

/// Converts a slice: its devices with their counters. Fails if an amount cannot be read.
pub fn resource_slice(slice: &ResourceSlice) -> Result<Slice, ConvertError> {
    let spec = &slice.spec;
    let access = access(
        spec.node_name.as_deref(),
        spec.node_selector.as_ref(),
        spec.all_nodes,
    );
    let counters = spec.shared_counters.as_deref();
    Ok(Slice {
        name: name(&slice.metadata),
        id: pool_id(&spec.driver, &spec.pool.name),
        generation: spec.pool.generation,
        slices: spec.pool.resource_slice_count,
        access: access.unwrap_or(Access::PerDevice),
        counters: list("spec.sharedCounters", counters, |field, set| {
            counter_set(field, &set.name, &set.counters)
        })?,
        devices: list("spec.devices", spec.devices.as_deref(), |field, of| {
            device(field, &spec.driver, of)
        })?,
    })
}

fn access(
    node: Option<&str>,
    selector: Option<&NodeSelector>,
    all: Option<bool>,
) -> Option<Access> {
    let node = node.filter(|n| !n.is_empty());
    let terms = |s: &NodeSelector| s.node_selector_terms.iter().map(affinity_term).collect();
    node.map(|n| Access::Node(n.into()))
        .or_else(|| selector.map(|s| Access::Nodes(terms(s))))
        .or_else(|| (all == Some(true)).then_some(Access::All))
}

fn device(field: &str, driver: &str, device: &resource::Device) -> Result<Device, ConvertError> {
    let consumes = format!("{field}.consumesCounters");
    let capacity = device.capacity.iter().flatten().map(|(n, c)| {
        let field = format!("{field}.capacity[{n}]");
        Ok((own_name(driver, n).into(), capacity(&field, c)?))
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
            .filter_map(|(n, a)| Some((own_name(driver, n).into(), attribute(a)?)))
            .collect(),
        capacity: capacity.collect::<Result<_, ConvertError>>()?,
        consumes: list(
            &consumes,
            device.consumes_counters.as_deref(),
            |field, c| counter_set(field, &c.counter_set, &c.counters),
        )?,
        shared: device.allow_multiple_allocations == Some(true),
        taints: device.taints.iter().flatten().map(taint).collect(),
        binding_conditions: conditions.is_some_and(|c| !c.is_empty()),
    })
}

fn attribute(attribute: &resource::DeviceAttribute) -> Option<Attribute> {
    let text = attribute.string.clone().map(Attribute::Text);
    text.or_else(|| attribute.version.clone().map(Attribute::Version))
}

fn capacity(field: &str, of: &resource::DeviceCapacity) -> Result<Capacity, ConvertError> {
    Ok(Capacity {
        value: amount(&format!("{field}.value"), &of.value)?,
        policy: match &of.request_policy {
            Some(of) => Some(policy(&format!("{field}.requestPolicy"), of)?),
            None => None,
        },
    })
}

fn policy(field: &str, policy: &CapacityRequestPolicy) -> Result<RequestPolicy, ConvertError> {
    let some = |name: &str, q: Option<&Quantity>| {
        q.map(|q| amount(&format!("{field}.{name}"), q)).transpose()
    };
    let values = policy.valid_values.iter().flatten();
    Ok(RequestPolicy {
        default: some("default", policy.default.as_ref())?,
        range: match &policy.valid_range {
            Some(range) => Some((
                amount(&format!("{field}.validRange.min"), &range.min)?,
                some("validRange.max", range.max.as_ref())?,
                some("validRange.step", range.step.as_ref())?,
            )),
            None => None,
        },
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

/// Converts a claim: the devices that it requests and holds. Fails if an amount or an allocation
/// mode cannot be read.
pub fn resource_claim(claim: &ResourceClaim) -> Result<Claim, ConvertError> {
    let (meta, status) = (&claim.metadata, claim.status.as_ref());
    let requests = claim.spec.devices.as_ref();
    let requests = requests.and_then(|d| d.requests.as_deref());
    let allocation = status.and_then(|s| s.allocation.as_ref());
    let results = allocation.map(|a| {
        let results = a.devices.as_ref().and_then(|d| d.results.as_deref());
        list("status.allocation.devices.results", results, held)
    });
    let users = status.and_then(|s| s.reserved_for.as_ref());
    let core = |group: Option<&str>| group.unwrap_or_default().is_empty();
    let pods = users.into_iter().flatten();
    let pods = pods.filter(|r| r.resource == "pods" && core(r.api_group.as_deref()));
    let mut owners = meta.owner_references.iter().flatten();
    let owner = owners.find(|o| o.controller == Some(true) && o.kind == "Pod");
    Ok(Claim {
        namespace: meta.namespace.as_deref().unwrap_or("default").into(),
        name: name(meta),
        requests: list("spec.devices.requests", requests, request)?,
        allocated: results.transpose()?,
        reserved_for: pods.map(|r| r.uid.as_str().into()).collect(),
        owner: owner.map(|o| o.uid.as_str().into()),
    })
}

fn held(field: &str, result: &DeviceRequestAllocationResult) -> Result<Allocation, ConvertError> {
    let field = format!("{field}.consumedCapacity");
    Ok(Allocation {
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

fn request(field: &str, request: &DeviceRequest) -> Result<Vec<ExactRequest>, ConvertError> {
    let exactly = request.exactly.clone().map(|r| ("exactly".to_owned(), r));
    let first_available = request.first_available.iter().flatten().cloned();
    let alternatives = first_available.enumerate().map(|(i, r)| {
        let exact = ExactDeviceRequest {
            admin_access: None,
            allocation_mode: r.allocation_mode,
            capacity: r.capacity,
            count: r.count,
            device_class_name: r.device_class_name,
            selectors: r.selectors,
            tolerations: r.tolerations,
        };
        (format!("firstAvailable[{i}]"), exact)
    });
    let all = exactly.into_iter().chain(alternatives);
    all.map(|(name, r)| exact(&format!("{field}.{name}"), &r))
        .collect()
}

fn exact(field: &str, request: &ExactDeviceRequest) -> Result<ExactRequest, ConvertError> {
    let count = match request.allocation_mode.as_deref() {
        None | Some("" | "ExactCount") => {
            let count = request.count.unwrap_or(1);
            Count::Exact(u32::try_from(count).unwrap_or(u32::MAX))
        }
        Some("All") => Count::All,
        Some(other) => {
            let what = format!("{other:?} is not known; use ExactCount or All");
            return Err(error(format!("{field}.allocationMode"), what));
        }
    };
    let capacity = request.capacity.as_ref().and_then(|c| c.requests.as_ref());
    Ok(ExactRequest {
        class: request.device_class_name.as_str().into(),
        count,
        selectors: expressions(request.selectors.as_deref()),
        capacity: amounts(&format!("{field}.capacity.requests"), capacity, "")?,
        admin: request.admin_access == Some(true),
        tolerations: tolerations(request.tolerations.as_deref()),
    })
}

fn tolerations(list: Option<&[DeviceToleration]>) -> Vec<Toleration> {
    let one = |t: &DeviceToleration| Toleration {
        key: t.key.clone().filter(|k| !k.is_empty()),
        value: match t.operator.as_deref() {
            Some("Exists") => TolerationValue::Any,
            _ => TolerationValue::Equal(t.value.clone().unwrap_or_default()),
        },
        effect: t.effect.clone().filter(|e| !e.is_empty()),
    };
    list.into_iter().flatten().map(one).collect()
}

fn amounts(
    field: &str,
    map: Option<&BTreeMap<String, Quantity>>,
    driver: &str,
) -> Result<Amounts, ConvertError> {
    let one = |(n, q): (&String, &Quantity)| {
        let amount = amount(&format!("{field}[{n}]"), q)?;
        Ok((own_name(driver, n).into(), amount))
    };
    map.into_iter().flatten().map(one).collect()
}

fn expressions(selectors: Option<&[DeviceSelector]>) -> Vec<Box<str>> {
    let cel = selectors
        .into_iter()
        .flatten()
        .filter_map(|s| s.cel.as_ref());
    cel.map(|cel| cel.expression.as_str().into()).collect()
}

fn name(meta: &ObjectMeta) -> Arc<str> {
    meta.name.as_deref().unwrap_or_default().into()
}

/// Converts the items of a list; `convert` gets each with the name of its field.
fn list<T, U>(
    field: &str,
    items: Option<&[T]>,
    convert: impl Fn(&str, &T) -> Result<U, ConvertError>,
) -> Result<Vec<U>, ConvertError> {
    let items = items.into_iter().flatten().enumerate();
    items
        .map(|(i, item)| convert(&format!("{field}[{i}]"), item))
        .collect()
}

fn error(field: impl Into<String>, message: impl ToString) -> ConvertError {
    ConvertError {
        field: field.into(),
        message: message.to_string(),
    }
}

fn pool_id(driver: &str, pool: &str) -> PoolId {
    PoolId {
        driver: driver.into(),
        pool: pool.into(),
    }
}

fn amount(field: &str, quantity: &Quantity) -> Result<i64, ConvertError> {
    quantity::parse_milli(&quantity.0).map_err(|e| error(field, e))
}

#[cfg(test)]
mod tests;
