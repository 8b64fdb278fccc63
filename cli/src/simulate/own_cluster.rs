//! Simulates how many more pods fit on the nodes of a user's own cluster, now and after changes.

use std::{collections::HashMap, num::NonZeroUsize};

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1;
use kube::{Client, api::ListParams};
use tautline_api::{convert, manifest::Item};
use tautline_core::model::{Node, Pod};
use tautline_gpu_placement::{Inventory, SharingMode, inventory};
use tautline_gpu_simulator::fill::{Figures, NodePool, OwnCluster};
use tautline_gpu_slice::pod_shape;

use super::{Args, tables};
use crate::{fetch, output};

/// The number of pods in a row that do not fit, after which the nodes count as full.
const MAX_MISSES: NonZeroUsize = NonZeroUsize::new(20).unwrap();

pub(super) async fn run(args: &Args) -> Result<()> {
    let items = match args.manifests.read()? {
        Some(items) => items,
        None => read_cluster(&args.cluster.client().await?).await?,
    };
    let (nodes, pods) = of_items(&items);
    let own = own(&nodes, &pods);
    if own.mix.is_empty() {
        bail!("no pod requests GPU, so there is nothing to fill the nodes with; add pods that do");
    }
    let seeds = args.seeds_or(42..=51);
    let mut all: Vec<Figures> = Vec::new();
    for policy in &args.policy {
        let now = own.fill("now", *policy, &seeds, args.ties, MAX_MISSES);
        let before = now.fit;
        all.push(now);
        for change in &args.what_if {
            let case = change.to_string();
            let changed = own.with_change(change);
            let mut figures = changed.fill(&case, *policy, &seeds, args.ties, MAX_MISSES);
            figures.difference = Some(figures.fit - before);
            all.push(figures);
        }
    }
    output::print(args.output, &all, |all| tables::fills(all))
}

fn of_items(items: &[Item]) -> (Vec<Node>, Vec<Pod>) {
    let (mut nodes, mut pods) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            Item::Node(node) => nodes.push(convert::node(node)),
            Item::Pod(pod) => pods.push(convert::pod(pod)),
            _ => {}
        }
    }
    (nodes, pods)
}

async fn read_cluster(client: &Client) -> Result<Vec<Item>> {
    let mut items = fetch::items::<v1::Node>(client, ListParams::default(), Item::Node).await?;
    items.extend(fetch::items::<v1::Pod>(client, ListParams::default(), Item::Pod).await?);
    Ok(items)
}

/// Returns the cards of schedulable nodes, and the requests of pods.
fn own(nodes: &[Node], pods: &[Pod]) -> OwnCluster {
    let mut on: HashMap<&str, Vec<&Pod>> = HashMap::new();
    for pod in pods.iter().filter(|p| !p.finished) {
        if let Some(node) = &pod.node {
            on.entry(node).or_default().push(pod);
        }
    }
    let mut own = OwnCluster::default();
    let mut units: HashMap<&str, u16> = HashMap::new();
    for node in nodes {
        let here = on.get(&*node.name).into_iter().flatten().copied();
        let inventory = inventory::read(node, here, &[], None);
        warn(&node.name, &inventory);
        for pool in &inventory.pools {
            if let SharingMode::Shared { unit_milli } = pool.kind.mode {
                units.insert(&node.name, unit_milli);
            }
            if !node.unschedulable {
                own.pools.push(NodePool {
                    kind: pool.kind.clone(),
                    cpu_milli: inventory.cpu_milli,
                    memory_bytes: inventory.memory_bytes,
                    cards: pool.cards.iter().map(inventory::Card::left_milli).collect(),
                });
            }
        }
    }
    // A waiting pod has no node and so no unit; the largest unit is the cautious choice.
    let largest = units.values().copied().max();
    for pod in pods.iter().filter(|p| !p.finished) {
        let unit = pod.node.as_deref().and_then(|n| units.get(n).copied());
        let shape = pod_shape(pod, unit.or(largest));
        own.mix
            .extend(shape.filter(tautline_gpu_placement::Shape::needs_gpu));
    }
    own
}

/// Reports the devices of a node that are not simulated.
fn warn(node: &str, inventory: &Inventory) {
    for warning in &inventory.warnings {
        note!("node {node}: {warning}");
    }
    for counted in &inventory.counted {
        note!(
            "node {node}: {} {} are left out: only whole cards and shares of known size are simulated",
            counted.total,
            counted.resource
        );
    }
}
