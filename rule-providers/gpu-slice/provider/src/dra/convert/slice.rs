use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::NodeSelector,
        resource::v1::{self as resource, CapacityRequestPolicy, Counter, ResourceSlice},
    },
    apimachinery::pkg::api::resource::Quantity,
};
use tautline_api::convert::affinity_term;
use tautline_core::model::Taint;
use tautline_gpu_placement::dra::{
    Access, Attribute, Capacity, CounterSet, Device, RequestPolicy, Slice,
};

use super::{ConvertError, amount, name, pool_id};

/// Converts a slice: its devices with their counters. Fails if an amount cannot be read.
pub fn resource_slice(slice: &ResourceSlice) -> Result<Slice, ConvertError> {
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
    // Names without a domain belong to the driver's domain, which may also be written out.
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

fn policy(field: &str, policy: &CapacityRequestPolicy) -> Result<RequestPolicy, ConvertError> {
    let some = |name: &str, q: Option<&Quantity>| {
        q.map(|q| amount(&format!("{field}.{name}"), q)).transpose()
    };
    let range = policy.valid_range.as_ref();
    let values = policy.valid_values.iter().flatten();
    Ok(RequestPolicy {
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
