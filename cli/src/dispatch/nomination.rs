//! Writes the nominated clusters of a workload.
//!
//! Kueue removes the nomination when a cluster has admitted the workload, by a server-side apply as its
//! field manager that leaves the field out. The API server then keeps a field that another manager
//! owns, and refuses the whole write: `clusterName` and `nominatedClusterNames` exclude each other. So
//! Kueue demands that a dispatcher applies as Kueue's own manager, with all other fields of the status.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};
use tautline_runtime::api_call::within;

use super::{
    kueue::{API_VERSION, WORKLOAD, candidate, resource},
    machine::Key,
};

/// The field manager of Kueue's writes of admissions and nominations.
const FIELD_MANAGER: &str = "kueue-admission";
const DEADLINE: Duration = Duration::from_secs(5);

/// Replaces the nominated clusters `from` by `to`. A workload that has changed meanwhile is left as it
/// is, which is an error.
pub(super) async fn write(client: Client, of: &Key, from: &[String], to: &[String]) -> Result<()> {
    let api: Api<DynamicObject> = Api::namespaced_with(client, &of.namespace, &resource(WORKLOAD));
    let live = within(DEADLINE, api.get(&of.name)).await?;
    let patch = patch(&live, of, from, to).context("the workload has changed meanwhile")?;
    let params = PatchParams::apply(FIELD_MANAGER).force();
    within(
        DEADLINE,
        api.patch_status(&of.name, &params, &Patch::Apply(patch)),
    )
    .await?;
    Ok(())
}

/// Returns the configuration to apply: the workload's live status, with `to` as nominated clusters.
/// `None` if the workload has changed.
fn patch(live: &DynamicObject, of: &Key, from: &[String], to: &[String]) -> Option<Value> {
    let waits = candidate(live)?;
    if live.uid().as_ref() != Some(&of.uid) || waits.nominated != from {
        return None;
    }
    let mut status = live.data.get("status")?.clone();
    let fields = status.as_object_mut()?;
    fields.remove("nominatedClusterNames");
    if !to.is_empty() {
        fields.insert("nominatedClusterNames".to_owned(), json!(to));
    }
    Some(json!({
        "apiVersion": API_VERSION,
        "kind": WORKLOAD,
        // The API server refuses the write if Kueue has written after this version.
        "metadata": {"name": of.name, "namespace": of.namespace, "uid": of.uid,
                     "resourceVersion": live.resource_version()},
        "status": status,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::kueue::tests::workload;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn key(uid: &str) -> Key {
        Key {
            namespace: "shop".to_owned(),
            name: "job-a".to_owned(),
            uid: uid.to_owned(),
        }
    }

    #[test]
    fn patch_keeps_the_rest_of_the_status() {
        let live = workload(json!({"nominatedClusterNames": ["east"]}));
        let made = patch(
            &live,
            &key("u"),
            &names(&["east"]),
            &names(&["east", "west"]),
        )
        .unwrap();
        let mut expected = live.data["status"].clone();
        expected["nominatedClusterNames"] = json!(["east", "west"]);
        assert_eq!(made["status"], expected);
        assert_eq!(made["metadata"]["resourceVersion"], "7");
        let made = patch(&live, &key("u"), &names(&["east"]), &[]).unwrap();
        assert_eq!(made["status"].get("nominatedClusterNames"), None);
    }

    #[test]
    fn patch_refuses_a_workload_that_has_changed() {
        let live = workload(json!({"nominatedClusterNames": ["east"]}));
        let to = names(&["west"]);
        assert_eq!(patch(&live, &key("u"), &[], &to), None);
        assert_eq!(patch(&live, &key("another"), &names(&["east"]), &to), None);
        let admitted = workload(json!({"clusterName": "east"}));
        assert_eq!(patch(&admitted, &key("u"), &[], &to), None);
    }
}
