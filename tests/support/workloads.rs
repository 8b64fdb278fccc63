//! Workloads in a cluster with a controller manager, and our controller's objects for them.

use std::fmt::Debug;

use anyhow::Result;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tautline_api::constraint::{
    ConstraintPolicyBinding, ConstraintPolicyOffer, ConstraintPolicyOfferStatus,
};

use crate::{PATIENCE, eventually, objects::apply_one};

/// A Deployment of `replicas` pods labelled `app`.
pub async fn deployment(
    client: &Client,
    namespace: &str,
    name: &str,
    app: &str,
    replicas: u32,
) -> Result<()> {
    let labels = json!({"app": app});
    let document = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "automountServiceAccountToken": false,
                    "containers": [{"name": "main", "image": "example.com/app:1",
                                    "resources": {"requests": {"cpu": "10m"}}}],
                },
            },
        },
    });
    apply_one(client, document).await
}

/// Sets the number of a Deployment's pods.
pub async fn scale(client: &Client, namespace: &str, name: &str, replicas: u32) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    Api::<Deployment>::namespaced(client.clone(), namespace)
        .patch_scale(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// A PodDisruptionBudget for the pods labelled `app`; another call changes the number.
pub async fn pdb(
    client: &Client,
    namespace: &str,
    name: &str,
    app: &str,
    min_available: u32,
) -> Result<()> {
    let document = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    });
    apply_one(client, document).await
}

/// Lists, and retries while the API server does not answer: an empty list must be real.
async fn list<K>(api: &Api<K>, params: &ListParams) -> Vec<K>
where
    K: Clone + DeserializeOwned + Debug,
{
    let check = async || api.list(params).await.ok().map(|l| l.items);
    eventually("the API server lists", PATIENCE, check, async || "").await
}

/// The pods labelled `app` that are not being deleted.
pub async fn pods_of(client: &Client, namespace: &str, app: &str) -> Vec<Pod> {
    let params = ListParams::default().labels(&format!("app={app}"));
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let mut list = list(&pods, &params).await;
    list.retain(|p| p.metadata.deletion_timestamp.is_none());
    list
}

/// An offer with its spec as given.
pub async fn offer(client: &Client, namespace: &str, name: &str, spec: Value) -> Result<()> {
    let document = json!({
        "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    apply_one(client, document).await
}

/// The status of an offer; the default if there is none.
pub async fn offer_status(
    client: &Client,
    namespace: &str,
    name: &str,
) -> ConstraintPolicyOfferStatus {
    let offers: Api<ConstraintPolicyOffer> = Api::namespaced(client.clone(), namespace);
    let found = offers.get(name).await.ok().and_then(|o| o.status);
    found.unwrap_or_default()
}

/// The bindings of an offer that are not being deleted, by name.
pub async fn bindings(
    client: &Client,
    namespace: &str,
    offer: &str,
) -> Vec<ConstraintPolicyBinding> {
    let bindings: Api<ConstraintPolicyBinding> = Api::namespaced(client.clone(), namespace);
    // By their spec, as tests check the label.
    let mut list = list(&bindings, &ListParams::default()).await;
    list.retain(|b| b.spec.offer == offer && b.metadata.deletion_timestamp.is_none());
    list.sort_by_key(ResourceExt::name_any);
    list
}

/// The binding of an offer with the pod among its targets.
pub async fn binding(
    client: &Client,
    namespace: &str,
    offer: &str,
    pod: &str,
) -> Option<ConstraintPolicyBinding> {
    let of = |b: &ConstraintPolicyBinding| {
        let mut targets = b.spec.targets.values();
        targets.any(|t| t.kind == "Pod" && t.name == pod)
    };
    bindings(client, namespace, offer)
        .await
        .into_iter()
        .find(of)
}
