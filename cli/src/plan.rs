//! Implements `tautline plan`, which shows where the pending pods of manifests or of a cluster
//! would go, and why.

use std::process::ExitCode;

use anyhow::Result;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Node, Pod, Service},
    discovery::v1::EndpointSlice,
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
};
use kube::{Client, api::ListParams};
use tautline_api::{
    ConstraintPolicy, ConstraintPolicyOffer, CostProvider, RuleProvider, manifest::Item,
};
use tautline_core::trust::OWN_NAMESPACE;
use tautline_latency::{BANDWIDTH_TABLE_LABEL, TABLE_LABEL};
use tautline_runtime::manifest_files::Manifests;

use crate::{
    cluster::ClusterArgs,
    exit_code,
    fetch::items,
    local::LocalScheduler,
    manifests::{ManifestArgs, find_pod, pod_namespace},
    output::{self, Output},
    pod_name::PodName,
    provider_args::TrustArgs,
    render, scope,
};

#[derive(clap::Args)]
#[command(
    after_help = "Without -f the cluster is read once and not changed: where would its pending pods go?\n\
    With -f a Deployment, StatefulSet, ReplicaSet, Job or CronJob without pods in the manifests counts\n\
    with the pods of its template, NAME-0, NAME-1, ...: as many as run at a time, up to 100.\n\
    Warnings, errors with --strict: fields, kinds and quantities that would be ignored, offers that\n\
    select nothing or name a missing policy, rules without a Service, values that a built-in provider\n\
    refuses.\n\n\
    The extender and the providers gpu-slice, latency and scripted run here, on loopback.\n\n\
    Examples:\n  tautline plan -f examples/edge-inference\n  tautline plan -f DIR --pod shop/web-0 -o json\n  \
    kubectl get nodes,pods,services,cp,cpo -A -o yaml | tautline plan -f - -n shop --strict\n  tautline plan --context production"
)]
pub(crate) struct Args {
    #[command(flatten)]
    manifests: ManifestArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    trust: TrustArgs,
    /// Only pending pods of this namespace, and the namespace of --pod NAME [default: for
    /// --pod that of the kubeconfig's context, else default]
    #[arg(short, long, value_name = "NS", value_parser = scope::name)]
    namespace: Option<String>,
    /// Only this pod, as NAMESPACE/NAME, or NAME with -n; bound or not
    #[arg(long, value_name = "NS/NAME", value_parser = PodName::parse)]
    pod: Option<PodName>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Maximum number of nodes to show for each pod
    #[arg(long, default_value_t = 20)]
    nodes: usize,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let named = match &args.pod {
        Some(pod) => pod.namespace(args.namespace.as_deref())?,
        None => args.namespace.as_deref(),
    };
    let (mut manifests, default_namespace) = match args.manifests.load()? {
        Some(manifests) => (manifests, "default".to_owned()),
        None => {
            let client = args.cluster.client().await?;
            let namespace = client.default_namespace().to_owned();
            let items = read_cluster(&client).await?;
            (Manifests::from_items(items), namespace)
        }
    };
    let trusted = args.trust.trusted_namespaces(OWN_NAMESPACE);
    let local = LocalScheduler::start(&manifests.items, trusted).await?;
    if args.manifests.is_given() {
        let faults = local.rule_faults(&manifests.items).await;
        manifests.warn(faults);
        args.manifests.judge(&manifests)?;
    }
    let wanted = match &args.pod {
        None => None,
        Some(pod) => match find_pod(
            &manifests.items,
            named.unwrap_or(&default_namespace),
            &pod.name,
        ) {
            Ok(pod) => Some(pod),
            Err(absent) => {
                note!("error: {absent}");
                return Ok(exit_code(false));
            }
        },
    };
    let pods = match wanted {
        Some(pod) => vec![pod],
        None => {
            let mut pending = local.pending.clone();
            pending.retain(|p| named.is_none_or(|wanted| pod_namespace(p) == wanted));
            pending
        }
    };
    if pods.is_empty() {
        let scope = named.map_or_else(String::new, |ns| format!(" in namespace {ns}"));
        note!("no pod is pending{scope}; --pod NAMESPACE/NAME plans one that is bound");
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
    Ok(exit_code(placements.iter().all(|p| p.node.is_some())))
}

async fn read_cluster(c: &Client) -> Result<Vec<Item>> {
    let all = ListParams::default;
    let mut found = items::<Node>(c, all(), Item::Node).await?;
    found.extend(items::<Namespace>(c, all(), Item::Namespace).await?);
    found.extend(items::<Pod>(c, all(), Item::Pod).await?);
    found.extend(items::<Service>(c, all(), Item::Service).await?);
    found.extend(items::<EndpointSlice>(c, all(), Item::EndpointSlice).await?);
    found.extend(items::<ConstraintPolicy>(c, all(), Item::Policy).await?);
    found.extend(items::<ConstraintPolicyOffer>(c, all(), Item::Offer).await?);
    for label in [TABLE_LABEL, BANDWIDTH_TABLE_LABEL] {
        let tables = all().labels(&format!("{label}=enabled"));
        found.extend(items::<ConfigMap>(c, tables, Item::ConfigMap).await?);
    }
    // DRA is optional in a cluster, as are the kinds of scripts.
    let optional = [
        items::<DeviceClass>(c, all(), Item::DeviceClass).await,
        items::<ResourceSlice>(c, all(), Item::ResourceSlice).await,
        items::<ResourceClaim>(c, all(), Item::ResourceClaim).await,
        items::<CostProvider>(c, all(), Item::CostProvider).await,
        items::<RuleProvider>(c, all(), Item::RuleProvider).await,
    ];
    found.extend(optional.into_iter().flatten().flatten());
    Ok(found)
}
