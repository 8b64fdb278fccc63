//! Nodes for pods that request GPUs: the node filter and the rule provider `gpu-slice` against
//! kube-scheduler's filter plugins. DRA drivers or device plugins serve the GPUs.

mod clusters;
mod pods;
mod slices;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use serde_json::{Value, json};
use tautline_api::manifest::{self, Item};
use tautline_core::{
    Snapshot,
    index::Object,
    model::{Pod, Resources},
    node_filter::NodeFilter,
    quantity,
};
use tautline_gpu_slice::{Config, GpuSlice, dra};
use tautline_runtime::{cluster_store::ClusterStore, manifest_files};
use tautline_sdk::{Container, CostRequest, Reference, Rule, RuleProvider, Workload};
use tautline_tests::oracle::Oracle;

use clusters::GPU;

/// The number of clusters that are compared.
const CLUSTERS: u64 = 300;
/// The least number of nodes of each kind of outcome.
const LEAST_NODES: usize = 30;

/// What Tautline says of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ours {
    /// The pod can have what it requests.
    Usable,
    /// The scheduler may find devices or not.
    Uncertain,
    Unusable(String),
}

/// A cluster as `tautline plan` knows it.
struct Cluster {
    snapshot: std::sync::Arc<Snapshot>,
    provider: GpuSlice,
    pending: Vec<Pod>,
}

impl Cluster {
    fn read(cluster: &Value) -> Result<Self> {
        let store = ClusterStore::default();
        let list = |key: &str| cluster[key].as_array().cloned().unwrap_or_default();
        let items = |key: &str| -> Result<Vec<Item>> {
            let texts = list(key).into_iter().map(|object| object.to_string());
            let read: Result<Vec<_>, _> = texts.map(|text| manifest::parse(&text)).collect();
            Ok(read?.concat())
        };
        let mut pending = Vec::new();
        for key in ["nodes", "deviceClasses", "pods", "pending"] {
            for item in items(key)? {
                let object = manifest_files::object(&item).map_err(anyhow::Error::msg)?;
                let object = object.context("no object")?;
                if let (Object::Pod(pod), "pending") = (&object, key) {
                    pending.push(pod.clone());
                }
                store.apply(object);
            }
        }
        let provider = GpuSlice::new(store.clone(), Config::default());
        let (mut classes, mut slices, mut claims) = (Vec::new(), Vec::new(), Vec::new());
        for key in ["deviceClasses", "slices", "resourceClaims"] {
            for item in items(key)? {
                match item {
                    Item::DeviceClass(class) => classes.push(dra::device_class(&class)),
                    Item::ResourceSlice(slice) => slices.push(dra::resource_slice(&slice)?),
                    Item::ResourceClaim(claim) => claims.push(dra::resource_claim(&claim)?),
                    other => bail!("{other:?} is no object of DRA"),
                }
            }
        }
        provider.set_classes(classes);
        provider.set_slices(slices);
        // As in a plan: a provider that knows claims waits for more of them.
        if !claims.is_empty() {
            provider.set_claims(claims);
        }
        Ok(Self {
            snapshot: store.snapshot(),
            provider,
            pending,
        })
    }

    /// Returns what Tautline says of each node for the pod. The provider is asked only about pods
    /// with GPUs or claims.
    async fn nodes_for(&self, pod: &Pod) -> Result<BTreeMap<String, Ours>> {
        let filter = NodeFilter::new(&self.snapshot, pod);
        let mut found = BTreeMap::new();
        for node in self.snapshot.nodes() {
            let reason = filter.reason(node).map(|reason| reason.to_string());
            found.insert(
                node.name.to_string(),
                reason.map_or(Ours::Usable, Ours::Unusable),
            );
        }
        if !self.is_asked(pod) {
            return Ok(found);
        }
        let usable = |(node, ours): (&String, &Ours)| (*ours == Ours::Usable).then(|| node.clone());
        let question = question(pod, found.iter().filter_map(usable).collect());
        let answer = self.provider.endpoint_cost(question).await?;
        for node in answer.nodes() {
            let ours = if node.cost < 0 {
                Ours::Unusable(format!("{}: {}", node.code, node.detail))
            } else if node.detail == "the scheduler may find devices there" {
                Ours::Uncertain
            } else {
                Ours::Usable
            };
            found.insert(node.node.to_owned(), ours);
        }
        Ok(found)
    }

    fn is_asked(&self, pod: &Pod) -> bool {
        let of_class = self.snapshot.requested_of_class(&pod.requests);
        pod.requests.milli(GPU) > 0 || of_class.is_some() || pod.claims().next().is_some()
    }
}

fn texts(requests: &Resources) -> BTreeMap<String, String> {
    let text = |(name, milli): (&str, i64)| (name.to_owned(), quantity::format_milli(milli));
    requests.iter().map(text).collect()
}

/// Returns the question about a pod, as Tautline asks providers.
fn question(pod: &Pod, nodes: Vec<String>) -> CostRequest {
    let containers = pod.placement.iter().flat_map(|p| &p.containers);
    let containers = containers.map(|container| Container {
        kind: container.kind,
        requests: texts(&container.requests),
    });
    CostRequest {
        source: Reference::pod(&pod.namespace, &pod.name),
        rule: Rule {
            name: "gpu-slice".into(),
            request: "true".into(),
            ..Rule::default()
        },
        eligible_nodes: nodes,
        workload: Some(Workload {
            uid: pod.uid.to_string(),
            requests: texts(&pod.requests),
            resource_claims: pod.claims().map(str::to_owned).collect(),
            containers: containers.collect(),
            ..Workload::default()
        }),
        ..CostRequest::default()
    }
}

/// Returns kube-scheduler's reason without names, which differ between claims and pools.
fn kind(reason: &str) -> &str {
    let kinds = ["asks for all devices", "does not exist"];
    let found = kinds.into_iter().find(|kind| reason.contains(kind));
    found.unwrap_or(reason)
}

/// Returns the kind of a node's outcome, and whether both agree on it. Where Tautline is not
/// certain, kube-scheduler may say either.
fn outcome(cluster: &Cluster, pod: &Pod, node: &str, ours: &Ours, theirs: &str) -> (String, bool) {
    let offered = cluster
        .snapshot
        .node(node)
        .map_or(0, |n| n.allocatable.milli(GPU));
    let is_of_devices = cluster.is_asked(pod) && (offered == 0 || pod.requests.milli(GPU) == 0);
    match ours {
        Ours::Usable if is_of_devices => ("usable by devices".into(), theirs.is_empty()),
        Ours::Usable => ("usable".into(), theirs.is_empty()),
        Ours::Uncertain => ("uncertain".into(), true),
        Ours::Unusable(_) => (kind(theirs).to_owned(), !theirs.is_empty()),
    }
}

/// Compares random clusters; `TAUTLINE_SEED` is the first one's seed.
#[tokio::test]
async fn devices_are_counted_as_kube_scheduler_counts_them() -> Result<()> {
    let first = super::first_seed()?;
    let seeds: Vec<u64> = (first..first + CLUSTERS).collect();
    let all: Vec<Value> = seeds
        .iter()
        .map(|seed| clusters::cluster(&mut Rng::with_seed(*seed)))
        .collect();
    let answers = Oracle::start("filter", &[])?.ask(&all)?;
    let mut counts = BTreeMap::<String, usize>::new();
    let mut differ = BTreeSet::new();
    let mut shown = Vec::new();
    for ((seed, json), answer) in seeds.iter().zip(&all).zip(&answers) {
        let Some(theirs) = answer["pending"].as_array() else {
            bail!("seed {seed}: {answer} for {json}");
        };
        let cluster = Cluster::read(json).with_context(|| format!("seed {seed}"))?;
        for (pod, theirs) in cluster.pending.iter().zip(theirs) {
            for (node, ours) in cluster.nodes_for(pod).await? {
                let theirs = theirs[&node].as_str().context("no answer about a node")?;
                let (kind, agrees) = outcome(&cluster, pod, &node, &ours, theirs);
                *counts.entry(kind).or_default() += 1;
                if !agrees {
                    differ.insert(*seed);
                    shown.push(format!(
                        "seed {seed}, {} on {node}: ours {ours:?}, theirs {theirs:?}",
                        pod.name
                    ));
                }
            }
        }
    }
    println!("nodes by outcome in {CLUSTERS} clusters: {counts:#?}");
    if let Some(seed) = differ.first() {
        let cluster = clusters::cluster(&mut Rng::with_seed(*seed));
        bail!(
            "{} clusters differ:\n{}\n{}",
            differ.len(),
            shown.join("\n"),
            json!(cluster)
        );
    }
    let of = |kind: &str| counts.get(kind).copied().unwrap_or(0);
    let total: usize = counts.values().sum();
    // A comparison in which much is uncertain compares little.
    assert!(
        of("uncertain") * 20 < total,
        "{} of {total} nodes are uncertain",
        of("uncertain")
    );
    if first != 0 {
        // Other seeds may have other shares.
        return Ok(());
    }
    for kind in [
        "resourceclaim not available on the node",
        "usable by devices",
        "cannot allocate all claims",
        "Insufficient nvidia.com/gpu",
    ] {
        assert!(of(kind) > LEAST_NODES, "too few nodes: {kind}");
    }
    Ok(())
}
