//! `tautline gpu explain`

mod nodes;
mod report;
mod text;

use std::process::ExitCode;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use tautline_api::convert;
use tautline_core::model::{Pod, key};
use tautline_gpu::policy::Name as Policy;

use self::report::Explained;
use super::source::{Source, SourceArgs};
use crate::{
    NO,
    output::{self, Output},
    scope::{self, NamespaceArgs},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pod, as NAMESPACE/NAME, or NAME with -n
    #[arg(value_parser = pod_name)]
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

#[derive(Clone, Debug)]
struct PodName {
    namespace: Option<String>,
    name: String,
}

fn pod_name(text: &str) -> Result<PodName, String> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(scope::name(namespace)?), name),
        None => (None, text),
    };
    let name = scope::name(name)?;
    Ok(PodName { namespace, name })
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let name = &args.pod.name;
    let named = (args.pod.namespace.as_deref(), args.namespace.named());
    if let (Some(a), Some(b)) = named
        && a != b
    {
        bail!("the pod is {a}/{name}, and -n says {b}; leave one of them out");
    }
    let source = args.source.read(Some(name)).await?;
    let namespace = named.0.or(named.1).unwrap_or(&source.namespace).to_owned();
    let Some(pod) = find(&source, &namespace) else {
        note!("error: {}", absent(&source, &namespace, name));
        return Ok(ExitCode::from(NO));
    };
    let explained = Explained::of(source.snapshot, &pod, args.policy)?;
    output::print(args.output, &explained, |e| e.text(args.nodes))?;
    let placed = explained.node.is_some() || explained.finished;
    Ok(if placed || !explained.usable_nodes.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NO)
    })
}

/// The pod as it would be without a node: what restricts its placement is kept of
/// those alone.
fn find(source: &Source, namespace: &str) -> Option<Pod> {
    let of = |p: &&ApiPod| p.metadata.namespace.as_deref().unwrap_or("default") == namespace;
    let mut pod = source.named.iter().find(of)?.clone();
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    Some(convert::pod(&pod))
}

fn absent(source: &Source, namespace: &str, name: &str) -> String {
    let others = source.named.iter().map(|p| {
        let of = p.metadata.namespace.as_deref().unwrap_or("default");
        key(of, name)
    });
    let others: Vec<String> = others.collect();
    match others.as_slice() {
        [] => format!("there is no pod {namespace}/{name}, nor one of that name in any namespace"),
        some => format!(
            "there is no pod {namespace}/{name}; there is {}",
            some.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests;
