//! Reads the objects of a cluster that decide where its pods go.

use anyhow::Result;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service},
    discovery::v1::EndpointSlice,
    resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice},
    storage::v1::StorageClass,
};
use kube::{Client, api::ListParams};
use tautline_api::{
    ConstraintPolicy, ConstraintPolicyOffer, CostProvider, RuleProvider,
    manifest::{Item, StorageItem},
};
use tautline_latency::{BANDWIDTH_TABLE_LABEL, TABLE_LABEL};

use crate::fetch::{items, items_if_known};

/// Returns the objects, and a warning for each optional kind that cannot be read.
pub(super) async fn read(c: &Client) -> Result<(Vec<Item>, Vec<String>)> {
    let all = ListParams::default;
    let mut found = items::<Node>(c, all(), Item::Node).await?;
    found.extend(items::<Namespace>(c, all(), Item::Namespace).await?);
    found.extend(items::<Pod>(c, all(), Item::Pod).await?);
    found.extend(items::<Service>(c, all(), Item::Service).await?);
    found.extend(items::<EndpointSlice>(c, all(), Item::EndpointSlice).await?);
    found.extend(items::<ConstraintPolicy>(c, all(), Item::Policy).await?);
    found.extend(items::<ConstraintPolicyOffer>(c, all(), Item::Offer).await?);
    for label in [TABLE_LABEL, BANDWIDTH_TABLE_LABEL] {
        let tables = all().labels(&format!("{label}=enabled"));
        found.extend(items::<ConfigMap>(c, tables, Item::ConfigMap).await?);
    }
    // DRA is optional in a cluster, as are the kinds of scripts.
    let optional = [
        items_if_known::<DeviceClass>(c, all(), Item::DeviceClass).await,
        items_if_known::<ResourceSlice>(c, all(), Item::ResourceSlice).await,
        items_if_known::<ResourceClaim>(c, all(), Item::ResourceClaim).await,
        items_if_known::<ResourceClaimTemplate>(c, all(), Item::ResourceClaimTemplate).await,
        items_if_known::<CostProvider>(c, all(), Item::CostProvider).await,
        items_if_known::<RuleProvider>(c, all(), Item::RuleProvider).await,
    ];
    let mut warnings = Vec::new();
    for read in optional {
        match read {
            Ok(items) => found.extend(items),
            Err(error) => warnings.push(format!("{error:#}; the plan is made without them")),
        }
    }
    add_storage(c, &mut found, &mut warnings).await;
    Ok((found, warnings))
}

/// Adds the storage objects. Without the right to read claims, the pods lose theirs.
async fn add_storage(c: &Client, found: &mut Vec<Item>, warnings: &mut Vec<String>) {
    let all = ListParams::default;
    let claim = |o| Item::Storage(StorageItem::PersistentVolumeClaim(o));
    match items::<PersistentVolumeClaim>(c, all(), claim).await {
        Ok(claims) => found.extend(claims),
        Err(error) => {
            warnings.push(format!("{error:#}; volumes are not considered"));
            found.iter_mut().for_each(remove_volumes);
            return;
        }
    }
    let volume = |o| Item::Storage(StorageItem::PersistentVolume(o));
    let class = |o| Item::Storage(StorageItem::StorageClass(o));
    for read in [
        items::<PersistentVolume>(c, all(), volume).await,
        items::<StorageClass>(c, all(), class).await,
    ] {
        match read {
            Ok(read) => found.extend(read),
            Err(error) => warnings.push(format!(
                "{error:#}; where some volumes can be is not considered"
            )),
        }
    }
}

fn remove_volumes(item: &mut Item) {
    if let Item::Pod(pod) = item
        && let Some(spec) = &mut pod.spec
    {
        spec.volumes = None;
    }
}
