//! Implements `tautline plan`, which shows where the pending pods of manifests or of a cluster
//! would go, and why.

mod additions;
mod changes;
mod cluster;
mod document;
mod groups;
mod summary;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use clap::ValueEnum;
use tautline_core::trust::OWN_NAMESPACE;
use tautline_runtime::manifest_files::Manifests;

use crate::{
    cluster::ClusterArgs,
    exit_code,
    local::{LocalScheduler, Placement},
    manifests::{ManifestArgs, find_pod, pod_namespace},
    output::{self, Output},
    pod_name::PodName,
    provider_args::TrustArgs,
    render::{self, View},
    scope,
};
use changes::{Changes, SavedPlan, Scope};
use document::Plan;

#[derive(clap::Args)]
#[command(
    after_help = "Without -f the cluster is read once and not changed: where would its pending pods go?\n\
    With -f a Deployment, Job, JobSet, RayCluster or other workload without pods in the manifests counts\n\
    with the pods of its templates, as many as run at a time, up to 100; a DaemonSet has one on each node.\n\
    Warnings, errors with --strict: fields, kinds and quantities that would be ignored, offers that\n\
    select nothing or name a missing policy, rules without a Service, values that a built-in provider\n\
    refuses.\n\n\
    The extender and the providers gpu-slice, latency and scripted run here, on loopback.\n\n\
    Exit code 1: a pod stays pending, or with --fail-on moved: a pod has lost the node that the saved\n\
    plan of --compare has.\n\n\
    Examples:\n  tautline plan -f examples/edge-inference\n  tautline plan -f examples/edge-inference --pod vision/detector-0 -o json\n  \
    kubectl get nodes,services -A -o yaml >nodes.yaml\n  \
    tautline plan -f examples/near-server --nodes nodes.yaml --assume-providers\n  \
    tautline plan -f examples/near-server -o yaml >plan.yaml\n  \
    tautline plan -f examples/near-server --compare plan.yaml --fail-on moved\n  \
    kubectl get nodes,pods,services,cp,cpo -A -o yaml | tautline plan -f - -n shop --strict\n  tautline plan --context production"
)]
pub(crate) struct Args {
    #[command(flatten)]
    manifests: ManifestArgs,
    /// Nodes, Services and bound pods of a cluster in a file, for manifests without them; may be
    /// given several times
    #[arg(long, value_name = "FILE", requires = "file")]
    nodes: Vec<PathBuf>,
    /// Plan as if the chart's providers of latency and gpu-slice were installed, with their
    /// Services
    #[arg(long)]
    assume_providers: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    trust: TrustArgs,
    /// Only pending pods of this namespace, which is also that of objects in files and of --pod
    /// NAME without one [default: for --pod that of the kubeconfig's context, else default]
    #[arg(short, long, value_name = "NS", value_parser = scope::name)]
    namespace: Option<String>,
    /// Only this pod, as NAMESPACE/NAME, or NAME with -n; bound or not
    #[arg(long, value_name = "NS/NAME", value_parser = PodName::parse)]
    pod: Option<PodName>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Add the times of the decisions to JSON and YAML; they differ from run to run
    #[arg(long)]
    timings: bool,
    /// A plan saved with -o yaml or -o json: show what has changed since
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Exit with 1 in these cases
    #[arg(
        long,
        value_name = "WHAT",
        value_delimiter = ',',
        default_value = "pending"
    )]
    fail_on: Vec<FailOn>,
    /// Maximum number of nodes to show for each pod
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// A pod stays pending that has no scheduling gates
    Pending,
    /// A pod has lost the node that it has in the plan of --compare
    Moved,
}

/// The objects that decide the plan.
struct Input {
    manifests: Manifests,
    /// The namespace of a pod that names none.
    namespace: String,
    /// The warnings about the cluster, which have been shown.
    warnings: Vec<String>,
}

impl Args {
    async fn input(&self) -> Result<Input> {
        let named = self.namespace.as_deref();
        if let Some(mut manifests) = self.manifests.load(named)? {
            additions::add_nodes(&mut manifests, &self.nodes)?;
            return Ok(Input {
                manifests,
                namespace: named.unwrap_or("default").to_owned(),
                warnings: Vec::new(),
            });
        }
        let client = self.cluster.client().await?;
        let namespace = client.default_namespace().to_owned();
        let (items, warnings) = cluster::read(&client).await?;
        for warning in &warnings {
            note!("warning: {warning}");
        }
        Ok(Input {
            manifests: Manifests::from_items(items),
            namespace,
            warnings,
        })
    }

    fn fails(&self, placements: &[Placement], changes: Option<&Changes>) -> bool {
        self.fail_on.iter().any(|what| match what {
            FailOn::Pending => placements
                .iter()
                .any(|p| p.node.is_none() && p.gates.is_empty()),
            FailOn::Moved => changes.is_some_and(Changes::has_moves),
        })
    }
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let saved = args.compare.as_deref().map(SavedPlan::read).transpose()?;
    if saved.is_none() && args.fail_on.contains(&FailOn::Moved) {
        bail!("--fail-on moved needs --compare FILE, a plan saved with -o yaml or -o json");
    }
    let named = match &args.pod {
        Some(pod) => pod.namespace(args.namespace.as_deref())?,
        None => args.namespace.as_deref(),
    };
    let mut input = args.input().await?;
    let manifests = &mut input.manifests;
    let trusted = args.trust.trusted_namespaces(OWN_NAMESPACE);
    if args.assume_providers {
        additions::add_providers(&mut manifests.items, &trusted);
    }
    let local = LocalScheduler::start(&manifests.items, trusted).await?;
    if args.manifests.is_given() {
        let faults = local.rule_faults(&manifests.items).await;
        manifests.warn(faults);
        args.manifests.judge(manifests)?;
    }
    let pods = match &args.pod {
        None => {
            let mut pending = local.pending.clone();
            pending.retain(|p| named.is_none_or(|wanted| pod_namespace(p) == wanted));
            pending
        }
        Some(pod) => {
            let namespace = named.unwrap_or(&input.namespace);
            match find_pod(&manifests.items, namespace, &pod.name) {
                Ok(pod) => vec![pod],
                Err(absent) => {
                    note!("error: {absent}");
                    return Ok(exit_code(false));
                }
            }
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
    let node_count = local.node_count();
    local.stop().await;
    additions::hint(&args, node_count, &placements);

    let scope = Scope {
        namespace: args
            .pod
            .as_ref()
            .map_or(named, |_| Some(named.unwrap_or(&input.namespace))),
        pod: args.pod.as_ref().map(|pod| pod.name.as_str()),
    };
    let changes = saved.map(|saved| saved.changes(&placements, scope));
    let fails = args.fails(&placements, changes.as_ref());
    if let (Some(changes), true) = (&changes, args.output != Output::Table) {
        changes.lines().for_each(|line| note!("{line}"));
    }
    let warnings = manifests.warnings.iter().map(ToString::to_string);
    let mut plan = Plan::new(node_count, &placements, args.timings)?;
    plan.warnings = warnings.chain(input.warnings).collect();
    plan.changes = changes;
    output::print(args.output, &plan, |plan| text(&args, &placements, plan))?;
    let incomplete = placements.iter().filter(|p| !p.not_considered.is_empty());
    let count = incomplete.count();
    if count > 0 && args.manifests.is_strict() {
        bail!("--strict: pods with fields that are not considered: {count}")
    }
    Ok(exit_code(!fails))
}

fn text(args: &Args, placements: &[Placement], plan: &Plan<'_>) -> String {
    let view = View::of_stdout(args.rows);
    let mut parts: Vec<String> = Vec::new();
    // Without nodes every pod has the same answer, which the hint gives.
    if plan.summary.nodes > 0 {
        parts.extend(placements.iter().map(|p| render::placement(p, view)));
    }
    parts.extend(groups::text(placements, view));
    parts.extend(summary::text(placements, view));
    if let (Some(changes), Some(file)) = (&plan.changes, &args.compare) {
        parts.push(changes.text(&file.display().to_string()));
    }
    parts.join("\n")
}
