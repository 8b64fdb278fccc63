//! Fills the API server with concurrent requests.

use std::time::Instant;

use anyhow::Result;
use kube::Client;
use serde_json::{Value, json};
use tautline_bench::cluster::{self, each};
use tautline_tests::objects as tests;

use crate::{Size, objects};

/// Creates all objects, in the order of their dependencies.
pub async fn create(client: &Client, size: &Size, provider: u16) -> Result<()> {
    let namespaces = objects::namespaces(size);
    let namespace = |i: usize| {
        let name = format!("team-{i}");
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        ("/api/v1/namespaces".to_owned(), object)
    };
    all(client, "namespaces", namespaces, namespace).await?;
    let node = |i| ("/api/v1/nodes".to_owned(), objects::node(i));
    all(client, "nodes", size.nodes, node).await?;
    let policy = |i| within("constraintpolicies", objects::policy(i));
    all(client, "policies", size.offers, policy).await?;
    let offer = |i| within("constraintpolicyoffers", objects::offer(i));
    all(client, "offers", size.offers, offer).await?;
    let service = |i| within("services", objects::service(i, size));
    all(client, "services", size.services, service).await?;
    let slice = |i| within("endpointslices", objects::endpoint_slice(i, size));
    all(client, "endpoint slices", size.services, slice).await?;
    let pod = |i| within("pods", objects::pod(i, size.nodes));
    all(client, "pods", size.pods, pod).await?;
    tests::provider(client, "team-0", "provider", provider, &objects::RULES).await
}

/// The path to post a namespaced object to, and the object.
fn within(plural: &str, object: Value) -> (String, Value) {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = if version == "v1" { "api" } else { "apis" };
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let path = format!("/{group}/{version}/namespaces/{namespace}/{plural}");
    (path, object)
}

async fn all(
    client: &Client,
    what: &str,
    count: usize,
    object: impl Fn(usize) -> (String, Value),
) -> Result<()> {
    let start = Instant::now();
    let one = async |i: usize| {
        let (path, object) = object(i);
        cluster::create(client, &path, &object).await?;
        if (i + 1).is_multiple_of(10_000) {
            eprintln!("  {} {what} after {:.0?}", i + 1, start.elapsed());
        }
        Ok(())
    };
    each(count, one).await?;
    eprintln!("{count} {what} created in {:.1?}", start.elapsed());
    Ok(())
}
