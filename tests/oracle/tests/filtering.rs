//! Hard rules for nodes: `tautline_core`'s node filter against kube-scheduler's filter plugins.

mod clusters;
mod devices;
mod random;
mod storage;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use serde_json::{Value, json};
use tautline_api::manifest;
use tautline_core::{
    index::{Index, Object},
    model::Node,
    node_filter::NodeFilter,
};
use tautline_runtime::manifest_files;
use tautline_tests::oracle::Oracle;

/// The number of clusters that are compared.
const CLUSTERS: u64 = 300;

/// Places the pending pods in order, each on the first usable node. Returns for each of them the
/// nodes' names with the reason that excludes the node, or an empty text.
fn placed(cluster: &Value) -> Result<Vec<Value>> {
    let mut index = Index::default();
    let list = |key: &str| cluster[key].as_array().cloned().unwrap_or_default();
    let storage = ["claims", "volumes", "classes"].into_iter().flat_map(list);
    let storage: Vec<_> = storage
        .map(|object| manifest::parse(&object.to_string()))
        .collect::<Result<_, _>>()?;
    index.apply(manifest_files::storage(&storage.concat()));
    let objects = ["namespaces", "nodes", "pods", "pending"].into_iter();
    for object in objects.flat_map(list) {
        for object in read(&object)? {
            index.apply(object);
        }
    }
    let mut all = Vec::new();
    for pending in list("pending") {
        let Some(Object::Pod(mut pod)) = read(&pending)?.pop() else {
            bail!("{pending} is no pod");
        };
        let snapshot = index.snapshot();
        let filter = NodeFilter::new(&snapshot, &pod);
        let reason = |node: &Node| filter.reason(node).map_or(String::new(), |r| r.to_string());
        let nodes = snapshot.nodes();
        let reasons: BTreeMap<_, _> = nodes
            .map(|node| (node.name.to_string(), reason(node)))
            .collect();
        let first = reasons.iter().find(|(_, reason)| reason.is_empty());
        pod.node = first.map(|(node, _)| node.as_str().into());
        index.apply(Object::Pod(pod));
        all.push(json!(reasons));
    }
    Ok(all)
}

/// Reads an object as `tautline plan` does. A pod is the last of its objects.
fn read(object: &Value) -> Result<Vec<Object>> {
    let items = manifest::parse(&object.to_string())?;
    let item = items.first().context("no object")?;
    let object = manifest_files::object(item).map_err(anyhow::Error::msg)?;
    let volumes = manifest_files::pod_volumes(item);
    Ok(volumes.into_iter().chain(object).collect())
}

/// Returns the nodes on which both disagree.
fn differences(ours: &Value, theirs: &Value) -> Vec<String> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let nodes = theirs.as_object().into_iter().flatten();
    let differ = nodes.filter(|(name, theirs)| {
        text(theirs).is_empty() != ours.get(name).is_some_and(|o| text(o).is_empty())
    });
    differ
        .map(|(name, theirs)| format!("{name}: ours {:?}, theirs {theirs}", ours.get(name)))
        .collect()
}

/// Returns a reason without the taints that differ between nodes.
fn kind(reason: &str) -> &str {
    reason.split(" {").next().unwrap_or(reason)
}

/// Returns the differences for the first pending pod that has some.
fn all_differences(seed: u64, cluster: &Value, answer: &Value) -> Result<Vec<String>> {
    let Some(theirs) = answer["pending"].as_array() else {
        bail!("seed {seed}: {answer} for {cluster}");
    };
    let ours = placed(cluster).with_context(|| format!("seed {seed}"))?;
    let pods = ours.iter().zip(theirs);
    let mut found = pods.map(|(ours, theirs)| differences(ours, theirs));
    Ok(found.find(|found| !found.is_empty()).unwrap_or_default())
}

/// Returns the first cluster's seed.
fn first_seed() -> Result<u64> {
    match std::env::var("TAUTLINE_SEED") {
        Ok(seed) => seed.parse().context("TAUTLINE_SEED is no number"),
        Err(_) => Ok(0),
    }
}

/// Compares random clusters; `TAUTLINE_SEED` is the first one's seed.
#[test]
fn node_filter_excludes_what_kube_scheduler_excludes() -> Result<()> {
    let first = first_seed()?;
    let seeds: Vec<u64> = (first..first + CLUSTERS).collect();
    let clusters: Vec<Value> = seeds
        .iter()
        .map(|seed| clusters::cluster(&mut Rng::with_seed(*seed)))
        .collect();
    let answers = Oracle::start("filter", &[])?.ask(&clusters)?;
    let mut counts = BTreeMap::<String, usize>::new();
    let theirs = answers
        .iter()
        .filter_map(|answer| answer["pending"].as_array());
    for (_, reason) in theirs.flatten().filter_map(Value::as_object).flatten() {
        let reason = reason.as_str().unwrap_or_default();
        *counts.entry(kind(reason).to_owned()).or_default() += 1;
    }
    let mut differ = Vec::new();
    for ((seed, cluster), answer) in seeds.iter().zip(&clusters).zip(&answers) {
        let mut found = all_differences(*seed, cluster, answer)?;
        if !found.is_empty() {
            // kube-scheduler's volume binder does not say when it has taken over its objects.
            let mut again = cluster.clone();
            again["patient"] = true.into();
            let answers = Oracle::start("filter", &[])?.ask(&[again])?;
            found = all_differences(*seed, cluster, &answers[0])?;
        }
        if !found.is_empty() {
            differ.push(format!("seed {seed}: {found:?}\n{cluster}"));
        }
    }
    println!("nodes by kube-scheduler's reason in {CLUSTERS} clusters: {counts:#?}");
    if !differ.is_empty() {
        let shown = differ.iter().take(5).cloned().collect::<Vec<_>>();
        bail!("{} clusters differ:\n{}", differ.len(), shown.join("\n"));
    }
    if first != 0 {
        // Other seeds may have other shares.
        return Ok(());
    }
    for reason in [
        "",
        "Insufficient",
        "free ports",
        "spread constraints",
        "affinity",
        "volume",
    ] {
        let is_there = |(text, count): (&String, &usize)| match reason {
            "" => text.is_empty() && *count > 200,
            "spread constraints" => text.ends_with(reason) && *count > 50,
            _ => text.contains(reason) && *count > 50,
        };
        assert!(counts.iter().any(is_there), "too few nodes with {reason:?}");
    }
    Ok(())
}
