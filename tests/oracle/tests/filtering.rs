//! Hard rules for nodes: `tautline_core`'s node filter against kube-scheduler's filter plugins.

mod clusters;

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

/// Returns each node's name with the reason that excludes it, or an empty text.
fn reasons(cluster: &Value) -> Result<Value> {
    let mut index = Index::default();
    let list = |key: &str| cluster[key].as_array().cloned().unwrap_or_default();
    let objects = ["namespaces", "nodes", "pods"].into_iter().flat_map(list);
    for object in objects {
        index.apply(read(&object)?);
    }
    let Object::Pod(pod) = read(&cluster["pod"])? else {
        bail!("{} is no pod", cluster["pod"]);
    };
    let snapshot = index.snapshot();
    let filter = NodeFilter::new(&snapshot, &pod);
    let reason = |node: &Node| filter.reason(node).map_or(String::new(), |r| r.to_string());
    let nodes = snapshot.nodes();
    let reasons = nodes.map(|n| (n.name.to_string(), json!(reason(n))));
    Ok(Value::Object(reasons.collect()))
}

/// Reads an object as `tautline plan` does.
fn read(object: &Value) -> Result<Object> {
    let items = manifest::parse(&object.to_string())?;
    let item = items.first().context("no object")?;
    let object = manifest_files::object(item).map_err(anyhow::Error::msg)?;
    object.context("an object that is not in the index")
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

/// Compares random clusters; `TAUTLINE_SEED` is the first one's seed.
#[test]
fn node_filter_excludes_what_kube_scheduler_excludes() -> Result<()> {
    let first = match std::env::var("TAUTLINE_SEED") {
        Ok(seed) => seed.parse().context("TAUTLINE_SEED is no number")?,
        Err(_) => 0,
    };
    let seeds: Vec<u64> = (first..first + CLUSTERS).collect();
    let clusters: Vec<Value> = seeds
        .iter()
        .map(|seed| clusters::cluster(&mut Rng::with_seed(*seed)))
        .collect();
    let answers = Oracle::start("filter", &[])?.ask(&clusters)?;
    let (mut usable, mut excluded) = (0, 0);
    let mut differ = Vec::new();
    for ((seed, cluster), answer) in seeds.iter().zip(&clusters).zip(&answers) {
        let Some(theirs) = answer.get("nodes") else {
            bail!("seed {seed}: {answer} for {cluster}");
        };
        for reason in theirs.as_object().into_iter().flatten() {
            match reason.1.as_str() {
                Some("") => usable += 1,
                _ => excluded += 1,
            }
        }
        let ours = reasons(cluster).with_context(|| format!("seed {seed}"))?;
        let found = differences(&ours, theirs);
        if !found.is_empty() {
            differ.push(format!("seed {seed}: {found:?}\n{cluster}"));
        }
    }
    println!("{usable} usable and {excluded} excluded nodes in {CLUSTERS} clusters");
    assert!(
        usable > 200 && excluded > 200,
        "the clusters say too little"
    );
    if !differ.is_empty() {
        let shown = differ.iter().take(5).cloned().collect::<Vec<_>>();
        bail!("{} clusters differ:\n{}", differ.len(), shown.join("\n"));
    }
    Ok(())
}
