//! Reads the claims and volumes of one pod, so that the plan for its eviction knows where they can
//! be used. No watch reads them: there may be many, and few pods are evicted.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, Client};
use tautline_api::convert;
use tautline_core::volumes::{PodVolumes, Storage};
use tautline_runtime::api_call;

use super::DEADLINE;
use crate::eviction::Refusal;

/// The maximum number of claims of a pod that are read, with two requests per claim.
const MAX_CLAIMS: usize = 32;

/// Returns the claims of a running pod, and the volumes that they are bound to.
///
/// # Errors
/// Fails if a claim or a volume cannot be read, or if there are too many.
pub(super) async fn read(client: &Client, pod: &PodVolumes) -> Result<Storage, Refusal> {
    let namespace = &*pod.namespace;
    if pod.claims.len() > MAX_CLAIMS {
        let count = pod.claims.len();
        let text = format!("the pod has {count} claims, more than the {MAX_CLAIMS} that are read");
        return Err(unplanned(text));
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let mut storage = Storage::default();
    for name in &pod.claims {
        let claim = api_call::within(DEADLINE, claims.get(name)).await;
        let claim = claim
            .map_err(|e| unplanned(format!("PersistentVolumeClaim {namespace}/{name}: {e}")))?;
        let claim = convert::volume_claim(&claim);
        if let Some(name) = &claim.volume {
            let volume = api_call::within(DEADLINE, volumes.get(name)).await;
            let volume = volume.map_err(|e| unplanned(format!("PersistentVolume {name}: {e}")))?;
            storage.add_volume(convert::volume(&volume));
        }
        storage.add_claim(claim);
    }
    Ok(storage)
}

fn unplanned(why: String) -> Refusal {
    Refusal::new(
        "PlanIncomplete",
        format!("volumes could not be planned: {why}"),
    )
}
