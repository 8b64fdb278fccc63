mod nodes;
mod report;
mod text;

use std::process::ExitCode;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use tautline_api::convert;
use tautline_core::model::Pod;
use tautline_gpu_placement::policy::PolicyName as Policy;

use self::report::PodExplanation;
use super::source::{Source, SourceArgs};
use crate::{
    EXIT_NO,
    output::{self, Output},
    pod_name::{PodName, absent},
    scope::NamespaceArgs,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pod, as NAMESPACE/NAME, or NAME with -n
    #[arg(value_parser = PodName::parse)]
    pod: PodName,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// How nodes and cards are compared: tautline, fgd, best-fit, packing or spread
    #[arg(long, default_value_t, value_name = "NAME")]
    policy: Policy,
    /// The most nodes to show
    #[arg(long, default_value_t = 20)]
    nodes: usize,
    #[command(flatten)]
    source: SourceArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let name = &args.pod.name;
    let named = args.pod.namespace(args.namespace.named())?;
    let source = args.source.read(Some(name)).await?;
    let namespace = named.unwrap_or(&source.namespace);
    let Some(pod) = find(&source, namespace) else {
        let others = source
            .named
            .iter()
            .map(|p| p.metadata.namespace.as_deref().unwrap_or("default"));
        note!("error: {}", absent(namespace, name, others));
        return Ok(ExitCode::from(EXIT_NO));
    };
    let explained = PodExplanation::new(source.snapshot, &pod, args.policy)?;
    output::print(args.output, &explained, |e| e.text(args.nodes))?;
    let placed = explained.node.is_some() || explained.finished;
    Ok(if placed || !explained.usable_nodes.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_NO)
    })
}

/// Finds the pod, as if it had no node: only waiting pods have their placement constraints.
fn find(source: &Source, namespace: &str) -> Option<Pod> {
    let of = |p: &&ApiPod| p.metadata.namespace.as_deref().unwrap_or("default") == namespace;
    let mut pod = source.named.iter().find(of)?.clone();
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    Some(convert::pod(&pod))
}

#[cfg(test)]
mod tests;
