use std::collections::BTreeMap;

use k8s_openapi::{
    api::resource::v1::{
        CapacityRequirements, DeviceRequest, DeviceRequestAllocationResult, DeviceSelector,
        DeviceToleration, ResourceClaim,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use tautline_core::model::{Toleration, TolerationValue};
use tautline_gpu_placement::dra::{
    Allocation, Amounts, Claim, ClaimRequest, Count, DeviceId, ExactRequest,
};

use super::{ConvertError, amount, error, name, pool_id};

/// Converts a claim: the devices that it requests and holds. Fails if an amount or an allocation
/// mode cannot be read.
pub fn resource_claim(claim: &ResourceClaim) -> Result<Claim, ConvertError> {
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
        namespace: claim
            .metadata
            .namespace
            .as_deref()
            .unwrap_or("default")
            .into(),
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

fn request(field: &str, request: &DeviceRequest) -> Result<ClaimRequest, ConvertError> {
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
    Ok(ClaimRequest {
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
) -> Result<ExactRequest, ConvertError> {
    let count = match mode {
        None | Some("" | "ExactCount") => {
            Count::Exact(u32::try_from(count.unwrap_or(1)).unwrap_or(u32::MAX))
        }
        Some("All") => Count::All,
        Some(other) => {
            let what = format!("{other:?} is not known; use ExactCount or All");
            return Err(error(format!("{field}.allocationMode"), what));
        }
    };
    let cel = selectors.into_iter().flatten();
    let field = format!("{field}.capacity.requests");
    Ok(ExactRequest {
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
        let own = n.strip_prefix(driver).and_then(|n| n.strip_prefix('/'));
        let own = own.filter(|_| !driver.is_empty()).unwrap_or(n);
        Ok((own.into(), amount(&format!("{field}[{n}]"), q)?))
    };
    map.into_iter().flatten().map(one).collect()
}
