//! Test objects, and applying manifests as kubectl does.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
    discovery,
};
use serde_json::{Value, json};

use crate::{PATIENCE, eventually};

/// Applies every document of a YAML text server-side. It waits for kinds whose CRD is new.
pub async fn apply(client: &Client, yaml: &str) -> Result<()> {
    apply_except(client, yaml, &[]).await
}

async fn apply_except(client: &Client, yaml: &str, skipped: &[&str]) -> Result<()> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(yaml, options)?;
    for document in documents.into_iter().filter(|d| !d.is_null()) {
        let kind = document["kind"].as_str().unwrap_or_default();
        if !skipped.contains(&kind) {
            apply_one(client, document).await?;
        }
    }
    Ok(())
}

/// Applies one object; a refusal of the API server names the object.
pub async fn apply_one(client: &Client, document: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(document)?;
    let types = object.types.clone().context("a document without kind")?;
    let gvk = GroupVersionKind::try_from(&types)?;
    let check = async || discovery::pinned_kind(client, &gvk).await.ok();
    let what = format!("the API server serves {} {}", types.api_version, types.kind);
    let (resource, caps) = eventually(&what, PATIENCE, check, async || "").await;
    let namespaced = caps.scope == discovery::Scope::Namespaced;
    let namespace = object.namespace().unwrap_or_else(|| "default".into());
    let api = api(client, &resource, namespaced.then_some(namespace.as_str()));
    let name = object.name_any();
    let params = PatchParams::apply("tautline-tests").force();
    api.patch(&name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("{} {name}", types.kind))?;
    // The status is a resource of its own.
    if ["Node", "ConstraintPolicyBinding"].contains(&types.kind.as_str()) {
        api.patch_status(&name, &params, &Patch::Apply(&object))
            .await?;
    }
    Ok(())
}

fn api(client: &Client, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(ns) => Api::namespaced_with(client.clone(), ns, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// Applies every manifest below a folder, in the order of a kustomization's
/// resources if there is one.
pub async fn apply_kustomization(client: &Client, dir: &Path) -> Result<()> {
    apply_kustomization_except(client, dir, &[]).await
}

/// The same without the kinds in `skipped`: where a controller manager runs, our Deployments
/// would become pods that kwok shows as ready and that serve nothing.
pub async fn apply_kustomization_except(
    client: &Client,
    dir: &Path,
    skipped: &[&str],
) -> Result<()> {
    let text = std::fs::read_to_string(dir.join("kustomization.yaml"))?;
    let kustomization: Value = serde_saphyr::from_str(&text)?;
    for resource in kustomization["resources"].as_array().into_iter().flatten() {
        let path = dir.join(resource.as_str().unwrap_or_default());
        if path.is_dir() {
            Box::pin(apply_kustomization_except(client, &path, skipped)).await?;
        } else {
            let text = std::fs::read_to_string(&path)?;
            apply_except(client, &text, skipped)
                .await
                .with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// A node with 32 CPUs and room for 110 pods.
pub async fn node(client: &Client, name: &str, labels: Value) -> Result<()> {
    let capacity = json!({"cpu": "32", "memory": "64Gi", "pods": "110"});
    let node: Node = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": capacity, "allocatable": capacity},
    }))?;
    Api::<Node>::all(client.clone())
        .create(&PostParams::default(), &node)
        .await?;
    Ok(())
}

/// A pod to be scheduled, labelled `app`.
pub async fn pod(client: &Client, namespace: &str, name: &str, app: &str) -> Result<()> {
    let pod: Pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "example.com/app:1",
                            "resources": {"requests": {"cpu": "10m"}}}],
        },
    }))?;
    Api::namespaced(client.clone(), namespace)
        .create(&PostParams::default(), &pod)
        .await?;
    Ok(())
}

/// A Service for a provider on loopback, bound to `rules`.
pub async fn provider(
    client: &Client,
    namespace: &str,
    name: &str,
    port: u16,
    rules: &[&str],
) -> Result<()> {
    let labels: serde_json::Map<String, Value> = rules
        .iter()
        .map(|r| {
            (
                format!("constraint.ciena.com/constraint-{r}"),
                "enabled".into(),
            )
        })
        .collect();
    apply_one(
        client,
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1",
                     "ports": [{"name": "ruleprovider", "port": port}]},
        }),
    )
    .await
}

/// A policy of one rule and an offer of it to pods labelled `app`.
pub async fn policy(
    client: &Client,
    namespace: &str,
    app: &str,
    rule: Value,
    offer: Value,
) -> Result<()> {
    let mut spec = json!({
        "targets": [{"apiVersion": "v1", "kind": "Pod", "labelSelector": {"matchLabels": {"app": app}}}],
        "policies": [app],
    });
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), offer.as_object()) {
        spec.extend(more.clone());
    }
    let of = |kind: &str, spec: Value| {
        json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": kind,
               "metadata": {"name": app, "namespace": namespace}, "spec": spec})
    };
    apply_one(client, of("ConstraintPolicy", json!({"rules": [rule]}))).await?;
    apply_one(client, of("ConstraintPolicyOffer", spec)).await
}

/// Waits until a pod is bound, and returns its node.
pub async fn wait_until_bound(
    client: &Client,
    namespace: &str,
    name: &str,
    state: impl AsyncFnOnce() -> String,
) -> String {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let check = async || pods.get(name).await.ok()?.spec?.node_name;
    let more = async || format!("{}{}", events(client, namespace, name).await, state().await);
    eventually(
        &format!("pod {namespace}/{name} is bound"),
        PATIENCE,
        check,
        more,
    )
    .await
}

/// The node of a pod now.
pub async fn node_of(client: &Client, namespace: &str, name: &str) -> Option<String> {
    Api::<Pod>::namespaced(client.clone(), namespace)
        .get(name)
        .await
        .ok()?
        .spec?
        .node_name
}

/// The events of an object, one a line: reason and message.
pub async fn events(client: &Client, namespace: &str, name: &str) -> String {
    let api: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let Ok(list) = api.list(&params).await else {
        return String::new();
    };
    let line = |e: &k8s_openapi::api::core::v1::Event| {
        let (reason, message) = (e.reason.clone(), e.message.clone());
        format!(
            "{}: {}\n",
            reason.unwrap_or_default(),
            message.unwrap_or_default()
        )
    };
    list.items.iter().map(line).collect()
}

/// The API server's response: status, body and warnings.
#[derive(Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The object, or the `Status` of a refusal.
    pub body: Value,
    /// The texts of the `Warning` headers.
    pub warnings: Vec<String>,
}

impl Response {
    /// The message of a refusal.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

/// Posts an object to `path`, as kubectl does.
pub async fn post(client: &Client, path: &str, object: &Value) -> Result<Response> {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(kube::client::Body::from(object.to_string().into_bytes()))?;
    let response = client.send(request).await?;
    let warnings = response.headers().get_all("warning").iter();
    // `299 - "text"`
    let text = |header: &http::HeaderValue| {
        let text = String::from_utf8_lossy(header.as_bytes()).into_owned();
        let quoted = text
            .splitn(3, ' ')
            .nth(2)
            .unwrap_or_default()
            .trim_matches('"');
        quoted.replace("\\\"", "\"")
    };
    let warnings = warnings.map(text).collect();
    let status = response.status().as_u16();
    let body = response.into_body().collect_bytes().await?;
    Ok(Response {
        status,
        body: serde_json::from_slice(&body)?,
        warnings,
    })
}
