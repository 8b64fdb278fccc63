//! Reads how many pods the controller of a group states.

use std::time::Duration;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    discovery,
};
use tautline_api::manifest::Workload;
use tautline_core::group::{GroupKey, POD_GROUP_LABEL};
use tautline_runtime::api_call::{ApiCallError, within};

/// The longest time of a read from the API server.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of controllers above a pod: a RayJob has a RayCluster, which has the pods.
const MAX_OWNERS: usize = 4;

/// Returns the number of pods that the controller of the group's pods states; `None` if no object
/// states it.
///
/// # Errors
/// An object cannot be read.
pub(super) async fn read(
    client: &Client,
    group: &GroupKey,
    pod: &str,
) -> Result<Option<u32>, ApiCallError> {
    let namespace = &group.namespace;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut metadata = within(TIMEOUT, pods.get_metadata(pod)).await?.metadata;
    if let Some(name) = group.name.strip_prefix("Kubernetes PodGroup ")
        && let Some(minimum) = gang_minimum(client, namespace, name).await?
    {
        return Ok(Some(minimum));
    }
    if let Some(name) = group.name.strip_prefix("PodGroup ") {
        let kind = GroupVersionKind::gvk("scheduling.x-k8s.io", "v1alpha1", "PodGroup");
        let found = get(client, namespace, &kind, name).await?;
        let minimum = found.data["spec"]["minMember"].as_u64();
        return Ok(minimum.and_then(|n| u32::try_from(n).ok()));
    }
    let mut stated = None;
    for _ in 0..MAX_OWNERS {
        let owners = metadata.owner_references.unwrap_or_default();
        let controller = owners.into_iter().find(|o| o.controller == Some(true));
        let Some(OwnerReference {
            api_version,
            kind,
            name,
            ..
        }) = controller
        else {
            break;
        };
        let (of, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
        let gvk = GroupVersionKind::gvk(of, version, &kind);
        let object = match get(client, namespace, &gvk, &name).await {
            Ok(object) => object,
            // The right to read controllers above a known one may be missing.
            Err(_) if stated.is_some() => break,
            Err(error) => return Err(error),
        };
        let value = serde_json::to_value(&object).unwrap_or_default();
        let size = Workload::stated_size(&value).and_then(|size| u32::try_from(size).ok());
        stated = size.or(stated);
        // The pods of one StatefulSet or Job are a group, not those of all that its owner has.
        if *group.name == *format!("{kind} {name}") || group.name.starts_with("of controller") {
            break;
        }
        metadata = object.metadata;
    }
    Ok(stated)
}

/// Returns the `minCount` of a PodGroup of Kubernetes, by the most stable version that the API server
/// serves; `None` if its pods are no gang.
async fn gang_minimum(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<u32>, ApiCallError> {
    let of = POD_GROUP_LABEL.split('/').next().unwrap_or_default();
    let group = within(TIMEOUT, discovery::group(client, of)).await?;
    let mut served = group.resources_by_stability().into_iter();
    let Some((resource, _)) = served.find(|(resource, _)| resource.kind == "PodGroup") else {
        return Ok(None);
    };
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let found = within(TIMEOUT, objects.get(name)).await?;
    let minimum = found.data["spec"]["schedulingPolicy"]["gang"]["minCount"].as_u64();
    Ok(minimum.and_then(|n| u32::try_from(n).ok()))
}

async fn get(
    client: &Client,
    namespace: &str,
    kind: &GroupVersionKind,
    name: &str,
) -> Result<DynamicObject, ApiCallError> {
    let resource = ApiResource::from_gvk(kind);
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    within(TIMEOUT, objects.get(name)).await
}
