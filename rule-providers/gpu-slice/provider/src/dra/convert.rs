//! Conversions of the objects of `resource.k8s.io/v1`.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

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
use kube::ResourceExt;
use tautline_api::convert::{ConvertError, affinity_term};
use tautline_core::{
    model::{AffinityTerm, Taint, Toleration, TolerationValue, key},
    quantity,
};
use tautline_gpu_placement::dra::{
    Access, Allocation, Amounts, Capacity, Claim, Class, Count, CounterSet, Device, DeviceId,
    DeviceStore, ExactRequest, PoolId, RequestPolicy, Slice, own_name,
};

/// Returns the devices of slices and the claims on them, without those that cannot be read.
pub fn device_store<'a>(
    slices: impl IntoIterator<Item = &'a ResourceSlice>,
    claims: impl IntoIterator<Item = &'a ResourceClaim>,
) -> DeviceStore {
    let mut store = DeviceStore::default();
    store.reset_slices(usable(slices, resource_slice));
    store.reset_claims(usable(claims, resource_claim));
    store
}

pub(crate) fn usable<'a, K: ResourceExt + 'a, T>(
    list: impl IntoIterator<Item = &'a K>,
    convert: impl Fn(&K) -> Result<T, ConvertError>,
) -> Vec<T> {
    let one = |object: &K| match convert(object) {
        Ok(converted) => Some(converted),
        Err(error) => {
            let name = object.name_any();
            tracing::warn!(%name, %error, "object cannot be used");
            None
        }
    };
    list.into_iter().filter_map(one).collect()
}

/// Returns the claims of the list that are not in the last one, and the names of those that have gone
/// or cannot be used, as `namespace/name`. An unchanged object is the same in both lists.
pub(crate) fn changed_claims(
    last: &[Arc<ResourceClaim>],
    list: &[Arc<ResourceClaim>],
) -> (Vec<Claim>, Vec<String>) {
    let objects = |list: &[Arc<ResourceClaim>]| list.iter().map(Arc::as_ptr).collect();
    let (before, now): (HashSet<_>, HashSet<_>) = (objects(last), objects(list));
    let is_new = |object: &&Arc<ResourceClaim>| !before.contains(&Arc::as_ptr(object));
    let changed = usable(list.iter().filter(is_new).map(|o| &**o), resource_claim);
    let is_old = |object: &&Arc<ResourceClaim>| !now.contains(&Arc::as_ptr(object));
    let name = |object: &Arc<ResourceClaim>| {
        key(&object.namespace().unwrap_or_default(), &object.name_any())
    };
    let names: HashSet<String> = changed.iter().map(|c| key(&c.namespace, &c.name)).collect();
    let gone = last.iter().filter(is_old).map(name);
    let gone = gone.filter(|name| !names.contains(name)).collect();
    (changed, gone)
}

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
    let set = |set: &resource::CounterSet| counter_set(&set.name, &set.counters);
    let counters = spec.shared_counters.iter().flatten().map(set);
    let devices = spec.devices.iter().flatten();
    Ok(Slice {
        name: name(&slice.metadata),
        id: pool_id(&spec.driver, &spec.pool.name),
        generation: spec.pool.generation,
        slices: spec.pool.resource_slice_count,
        access: access.unwrap_or(Access::PerDevice),
        counters: counters.collect::<Result<_, _>>()?,
        devices: devices
            .map(|of| device(&spec.driver, of))
            .collect::<Result<_, _>>()?,
    })
}

fn access(
    node: Option<&str>,
    selector: Option<&NodeSelector>,
    all: Option<bool>,
) -> Option<Access> {
    let node = node.filter(|n| !n.is_empty());
    node.map(|n| Access::Node(n.into()))
        .or_else(|| selector.map(|s| Access::Nodes(terms(s))))
        .or_else(|| (all == Some(true)).then_some(Access::All))
}

fn terms(selector: &NodeSelector) -> Vec<AffinityTerm> {
    let terms = selector.node_selector_terms.iter();
    terms.map(affinity_term).collect()
}

fn device(driver: &str, device: &resource::Device) -> Result<Device, ConvertError> {
    let capacities = device.capacity.iter().flatten();
    let capacities = capacities.map(|(n, c)| Ok((own_name(driver, n).into(), capacity(n, c)?)));
    let consumes = device.consumes_counters.iter().flatten();
    let attributes = device.attributes.iter().flatten();
    let numbers = attributes.clone();
    let numbers = numbers.filter_map(|(n, a)| Some((own_name(driver, n).into(), a.int?)));
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
            .filter_map(|(n, a)| Some((own_name(driver, n).into(), a.string.as_deref()?.into())))
            .collect(),
        numbers: numbers.collect(),
        capacity: capacities.collect::<Result<_, ConvertError>>()?,
        consumes: consumes
            .map(|c| counter_set(&c.counter_set, &c.counters))
            .collect::<Result<_, _>>()?,
        shared: device.allow_multiple_allocations == Some(true),
        taints: device.taints.iter().flatten().map(taint).collect(),
        binding_conditions: conditions.is_some_and(|c| !c.is_empty()),
    })
}

fn capacity(name: &str, of: &resource::DeviceCapacity) -> Result<Capacity, ConvertError> {
    let policy = of.request_policy.as_ref().map(|of| policy(name, of));
    Ok(Capacity {
        value: amount(name, &of.value)?,
        policy: policy.transpose()?,
    })
}

fn policy(name: &str, policy: &CapacityRequestPolicy) -> Result<RequestPolicy, ConvertError> {
    let some = |q: &Option<Quantity>| q.as_ref().map(|q| amount(name, q)).transpose();
    let range = policy.valid_range.as_ref();
    let range = range.map(|r| Ok((amount(name, &r.min)?, some(&r.max)?, some(&r.step)?)));
    let values = policy.valid_values.iter().flatten();
    Ok(RequestPolicy {
        default: some(&policy.default)?,
        range: range.transpose()?,
        values: values.map(|v| amount(name, v)).collect::<Result<_, _>>()?,
    })
}

fn counter_set(
    name: &str,
    counters: &BTreeMap<String, Counter>,
) -> Result<CounterSet, ConvertError> {
    let values = counters.iter().map(|(n, c)| (n, &c.value));
    Ok(CounterSet {
        name: name.into(),
        counters: amounts(values, "")?,
    })
}

/// Converts a claim: the devices that it requests and holds. Fails if an amount or an allocation
/// mode cannot be read.
pub fn resource_claim(claim: &ResourceClaim) -> Result<Claim, ConvertError> {
    let (meta, status) = (&claim.metadata, claim.status.as_ref());
    let requests = claim
        .spec
        .devices
        .iter()
        .flat_map(|d| &d.requests)
        .flatten();
    let allocation = status.and_then(|s| s.allocation.as_ref());
    let results = allocation.map(|a| {
        let results = a.devices.iter().flat_map(|d| &d.results).flatten();
        results.map(held).collect::<Result<_, _>>()
    });
    let nodes = allocation.and_then(|a| a.node_selector.as_ref());
    let users = status.and_then(|s| s.reserved_for.as_ref());
    let core = |group: Option<&str>| group.unwrap_or_default().is_empty();
    let pods = users.into_iter().flatten();
    let pods = pods.filter(|r| r.resource == "pods" && core(r.api_group.as_deref()));
    let mut owners = meta.owner_references.iter().flatten();
    let owner = owners.find(|o| o.controller == Some(true) && o.kind == "Pod");
    Ok(Claim {
        namespace: meta.namespace.as_deref().unwrap_or("default").into(),
        name: name(meta),
        requests: requests.map(request).collect::<Result<_, _>>()?,
        allocated: results.transpose()?,
        nodes: nodes.map(terms),
        reserved_for: pods.map(|r| r.uid.as_str().into()).collect(),
        owner: owner.map(|o| o.uid.as_str().into()),
    })
}

fn held(result: &DeviceRequestAllocationResult) -> Result<Allocation, ConvertError> {
    let consumed = result.consumed_capacity.iter().flatten();
    Ok(Allocation {
        device: DeviceId {
            pool: pool_id(&result.driver, &result.pool),
            device: result.device.as_str().into(),
        },
        admin: result.admin_access == Some(true),
        share: result.share_id.as_deref().map(Into::into),
        consumed: amounts(consumed, &result.driver)?,
        tolerations: tolerations(result.tolerations.as_deref()),
    })
}

fn request(request: &DeviceRequest) -> Result<Vec<ExactRequest>, ConvertError> {
    let first_available = request.first_available.iter().flatten().cloned();
    let alternatives = first_available.map(|r| ExactDeviceRequest {
        admin_access: None,
        allocation_mode: r.allocation_mode,
        capacity: r.capacity,
        count: r.count,
        device_class_name: r.device_class_name,
        selectors: r.selectors,
        tolerations: r.tolerations,
    });
    let all = request.exactly.iter().cloned().chain(alternatives);
    let all: Vec<_> = all.map(|r| exact(&r)).collect::<Result<_, _>>()?;
    if all.is_empty() {
        let what = format!(
            "request {:?} has none; write exactly or firstAvailable",
            request.name
        );
        return Err(error("spec.devices.requests", what));
    }
    Ok(all)
}

fn exact(request: &ExactDeviceRequest) -> Result<ExactRequest, ConvertError> {
    let count = match request.allocation_mode.as_deref() {
        None | Some("" | "ExactCount") => {
            // The API server replaces 0 by its default.
            let count = request.count.filter(|count| *count != 0).unwrap_or(1);
            Count::Exact(u32::try_from(count).unwrap_or(u32::MAX))
        }
        Some("All") => Count::All,
        Some(other) => {
            let what = format!("{other:?} is not known; use ExactCount or All");
            return Err(error("allocationMode", what));
        }
    };
    if request.device_class_name.is_empty() {
        let what = "is empty; name a DeviceClass";
        return Err(error("deviceClassName", what));
    }
    let capacity = request.capacity.iter().flat_map(|c| &c.requests).flatten();
    Ok(ExactRequest {
        class: request.device_class_name.as_str().into(),
        count,
        selectors: expressions(request.selectors.as_deref()),
        capacity: amounts(capacity, "")?,
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

fn amounts<'a>(
    all: impl Iterator<Item = (&'a String, &'a Quantity)>,
    driver: &str,
) -> Result<Amounts, ConvertError> {
    all.map(|(n, q)| Ok((own_name(driver, n).into(), amount(n, q)?)))
        .collect()
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

fn error(field: &str, message: impl ToString) -> ConvertError {
    ConvertError {
        field: field.to_owned(),
        message: message.to_string(),
    }
}

fn pool_id(driver: &str, pool: &str) -> PoolId {
    PoolId {
        driver: driver.into(),
        pool: pool.into(),
    }
}

/// Reads an amount; `name` is its capacity or counter.
fn amount(name: &str, quantity: &Quantity) -> Result<i64, ConvertError> {
    quantity::parse_milli(&quantity.0).map_err(|e| error(name, e))
}

#[cfg(test)]
mod tests;
