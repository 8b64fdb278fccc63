//! `tautline plan`

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;
use tautline_api::{
    ConstraintPolicy, ConstraintPolicyOffer, CostProvider, RuleProvider, manifest::Item,
};
use tautline_core::trust::OWN_NAMESPACE;
use tautline_latency::{BANDWIDTH_TABLE_LABEL, TABLE_LABEL};
use tautline_runtime::folder;

use crate::{
    NO,
    cluster::ClusterArgs,
    local::{Local, Placement},
    output::{self, Output},
    provider_args::TrustArgs,
    render,
};

#[derive(clap::Args)]
#[command(
    after_help = "Without -f the cluster is read, once, and nothing in it is changed: what would happen to its pending pods?\n\
    The extender and the providers gpu-slice, latency and scripted run here, on loopback.\n\n\
    Examples:\n  tautline plan -f examples/edge-inference\n  tautline plan -f DIR --pod shop/web-0 -o json\n  tautline plan --context production"
)]
pub(crate) struct Args {
    /// Manifests: a file, or a folder of nodes, pods, services, policies and offers
    #[arg(short, long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    trust: TrustArgs,
    /// Only this pod, as NAMESPACE/NAME; bound or not
    #[arg(long, value_name = "NS/NAME")]
    pod: Option<String>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// The most nodes to show for each pod
    #[arg(long, default_value_t = 20)]
    nodes: usize,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let items = match &args.file {
        Some(dir) => folder::read(dir)?,
        None => read_cluster(args.cluster.client().await?).await?,
    };
    let local = Local::start(items.clone(), args.trust.namespaces(OWN_NAMESPACE)).await?;
    let pods = match &args.pod {
        None => local.pending.clone(),
        Some(wanted) => vec![find(&items, wanted)?],
    };
    if pods.is_empty() {
        note!("no pod is pending; --pod NAMESPACE/NAME plans one that is bound");
    }
    let mut placements = Vec::new();
    for pod in &pods {
        placements.push(local.place(pod).await?);
    }
    local.stop().await;
    output::print(args.output, &placements, |list| {
        let texts: Vec<String> = list
            .iter()
            .map(|p| render::placement(p, args.nodes))
            .collect();
        texts.join("\n")
    })?;
    let all = placements.iter().all(|p: &Placement| p.node.is_some());
    Ok(if all {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NO)
    })
}

/// The pod, as if it were not bound.
fn find(items: &[Item], wanted: &str) -> Result<Pod> {
    let (namespace, name) = wanted.split_once('/').unwrap_or(("default", wanted));
    for item in items {
        let Item::Pod(pod) = item else { continue };
        let ns = pod.metadata.namespace.as_deref().unwrap_or("default");
        if ns == namespace && pod.metadata.name.as_deref() == Some(name) {
            let mut pod = (**pod).clone();
            if let Some(spec) = &mut pod.spec {
                spec.node_name = None;
            }
            return Ok(pod);
        }
    }
    bail!("there is no pod {namespace}/{name}; write --pod NAMESPACE/NAME")
}

/// Everything that planning needs of a cluster, read once.
async fn read_cluster(client: Client) -> Result<Vec<Item>> {
    async fn list<K>(
        client: &Client,
        params: &ListParams,
        item: fn(Box<K>) -> Item,
    ) -> Result<Vec<Item>>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let list = Api::<K>::all(client.clone())
            .list(params)
            .await
            .map_err(|e| anyhow::anyhow!("{} cannot be listed: {e}", K::plural(&())))?;
        Ok(list.items.into_iter().map(|o| item(Box::new(o))).collect())
    }
    let all = ListParams::default();
    let c = &client;
    let mut items = list::<Node>(c, &all, Item::Node).await?;
    items.extend(list::<Pod>(c, &all, Item::Pod).await?);
    items.extend(list::<Service>(c, &all, Item::Service).await?);
    items.extend(list::<EndpointSlice>(c, &all, Item::EndpointSlice).await?);
    items.extend(list::<ConstraintPolicy>(c, &all, Item::Policy).await?);
    items.extend(list::<ConstraintPolicyOffer>(c, &all, Item::Offer).await?);
    for label in [TABLE_LABEL, BANDWIDTH_TABLE_LABEL] {
        let tables = all.clone().labels(&format!("{label}=enabled"));
        items.extend(list::<ConfigMap>(c, &tables, Item::ConfigMap).await?);
    }
    // The scripts' kinds are optional in a cluster.
    items.extend(
        list::<CostProvider>(c, &all, Item::CostProvider)
            .await
            .unwrap_or_default(),
    );
    items.extend(
        list::<RuleProvider>(c, &all, Item::RuleProvider)
            .await
            .unwrap_or_default(),
    );
    Ok(items)
}
