//! Whether all of a pod's workload is up, by the API server's own word: a watch may
//! be behind, and a pod too many would be down.

use std::time::Duration;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Api, Client, api::ListParams};
use tautline_core::dns;

use super::Refusal;

/// The most that one look may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// A label that the pods of one ReplicaSet share: less to list.
const REVISION: &str = "pod-template-hash";

/// Refuses unless every pod that the workload of `pod` should have is ready, the
/// pod itself left out of account.
pub(super) async fn all_up(client: &Client, pod: &Pod) -> Result<(), Refusal> {
    let meta = &pod.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let Some(owner) = controller(meta) else {
        return Ok(());
    };
    let wanted = replicas(client, namespace, owner).await?;
    let label = meta.labels.as_ref().and_then(|l| l.get(REVISION));
    let revision = label.map(|value| format!("{REVISION}={value}"));
    let params = ListParams {
        label_selector: revision,
        ..ListParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let all = within(pods.list(&params)).await?.items;
    let (mut up, mut down) = (0, None);
    for other in all.iter().filter(|p| is_of(p, owner) && !is_finished(p)) {
        if other.metadata.uid == meta.uid || is_up(other) {
            up += 1;
        } else {
            down = other.metadata.name.as_deref();
        }
    }
    if let Some(down) = down {
        let text = format!("pod {namespace}/{down} of the same workload is not ready");
        return Err(Refusal::new("ReplicaDown", text));
    }
    match wanted {
        Some(wanted) if up < wanted => {
            let what = format!("{} {}", owner.kind, owner.name);
            let text = format!("{up} of the {wanted} pods of {what} are up");
            Err(Refusal::new("ReplicaDown", text))
        }
        _ => Ok(()),
    }
}

/// How many pods the workload should have; `None` for kinds that do not say.
async fn replicas(
    client: &Client,
    namespace: &str,
    owner: &OwnerReference,
) -> Result<Option<i32>, Refusal> {
    let one = |replicas: Option<i32>| Some(replicas.unwrap_or(1));
    match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("apps/v1", "ReplicaSet") => {
            let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);
            let set = within(sets.get(named(owner)?)).await?;
            let of_set = one(set.spec.and_then(|s| s.replicas));
            let above = controller(&set.metadata).filter(|o| o.kind == "Deployment");
            let Some(above) = above else {
                return Ok(of_set);
            };
            // In a rollout this set has fewer than the Deployment wants.
            let all: Api<Deployment> = Api::namespaced(client.clone(), namespace);
            let deployment = within(all.get(named(above)?)).await?;
            Ok(one(deployment.spec.and_then(|s| s.replicas)))
        }
        ("apps/v1", "StatefulSet") => {
            let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
            let set = within(sets.get(named(owner)?)).await?;
            Ok(one(set.spec.and_then(|s| s.replicas)))
        }
        _ => Ok(None),
    }
}

/// The owner's name, which whoever writes the pod chooses, and which becomes part of a URL.
fn named(owner: &OwnerReference) -> Result<&str, Refusal> {
    if dns::is_subdomain(&owner.name) {
        return Ok(&owner.name);
    }
    let (kind, name) = (&owner.kind, &owner.name);
    let text = format!("the pod's owner is {kind} {name:?}, which no object can be called");
    Err(Refusal::new("Failed", text))
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Refusal> {
    let answer = tautline_runtime::api_call::within(DEADLINE, call).await;
    answer.map_err(|error| {
        let text = format!("whether the workload is up is not known: {error}");
        Refusal::new("Failed", text)
    })
}

fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|o| o.controller == Some(true))
}

fn is_of(pod: &Pod, owner: &OwnerReference) -> bool {
    controller(&pod.metadata).is_some_and(|o| o.uid == owner.uid)
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_up(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let ready = |all: &Vec<_>| {
        all.iter()
            .any(|c: &k8s_openapi::api::core::v1::PodCondition| {
                c.type_ == "Ready" && c.status == "True"
            })
    };
    pod.metadata.deletion_timestamp.is_none() && conditions.is_some_and(ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_no_object_can_be_called_is_not_asked_for() {
        let owner = |name: &str| OwnerReference {
            kind: "ReplicaSet".into(),
            name: name.into(),
            ..OwnerReference::default()
        };
        assert_eq!(named(&owner("web-7f9c")).unwrap(), "web-7f9c");
        for name in ["", "../../secrets/x", "web?watch=true", "web/scale", ".."] {
            assert!(named(&owner(name)).is_err(), "{name:?}");
        }
    }
}
