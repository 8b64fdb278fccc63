use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::{Api, Client, ResourceExt, core::DeserializeGuard};
use tautline_api::convert::ConvertError;
use tautline_runtime::{admin::Readiness, tasks::Tasks, watch::watch_list};

use crate::{dra, provider::GpuSlice};

const GROUP_VERSION: &str = "resource.k8s.io/v1";

/// Watches the objects of DRA, if the cluster has their API (Kubernetes 1.34).
pub(crate) async fn watch(
    client: &Client,
    provider: &GpuSlice,
    readiness: &Readiness,
    tasks: &mut Tasks,
) -> Result<()> {
    match client.list_api_group_resources(GROUP_VERSION).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {
            tracing::info!(
                "the cluster has no {GROUP_VERSION}: devices of DRA drivers are not counted"
            );
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    }
    let watched = provider.clone();
    let api: Api<DeserializeGuard<ResourceSlice>> = Api::all(client.clone());
    watch_list(api, None, readiness, tasks, move |list| {
        watched.set_slices(usable(&list, dra::resource_slice));
    });
    let watched = provider.clone();
    let api: Api<DeserializeGuard<ResourceClaim>> = Api::all(client.clone());
    watch_list(api, None, readiness, tasks, move |list| {
        watched.set_claims(usable(&list, dra::resource_claim));
    });
    let watched = provider.clone();
    let api: Api<DeserializeGuard<DeviceClass>> = Api::all(client.clone());
    watch_list(api, None, readiness, tasks, move |list| {
        watched.set_classes(list.iter().map(|class| dra::device_class(class)).collect());
    });
    Ok(())
}

fn usable<K: ResourceExt, T>(
    list: &[Arc<K>],
    convert: impl Fn(&K) -> Result<T, ConvertError>,
) -> Vec<T> {
    let one = |object: &Arc<K>| match convert(object) {
        Ok(converted) => Some(converted),
        Err(error) => {
            let name = object.name_any();
            tracing::warn!(%name, %error, "object cannot be used");
            None
        }
    };
    list.iter().filter_map(one).collect()
}
