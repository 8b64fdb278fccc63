//! Implements `tautline simulate`, which compares GPU placement policies on a recorded trace, or
//! fills the nodes of a cluster.

mod own_cluster;
mod tables;
#[cfg(test)]
mod tests;
mod trace;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use tautline_gpu_simulator::{Contender, Ties, fill::Change};

use crate::{cluster::ClusterArgs, manifests::NamespacedManifestArgs, output::Output};

#[derive(clap::Args)]
#[command(
    after_help = "With --trace: compares policies on a recorded cluster. Pods arrive one at a time, and a pod that\n\
    fits on no node is dropped. The folder is laid out as the openb trace of Alibaba and of Weng et\n\
    al., USENIX ATC 2023: nodes.csv, pods/WORKLOAD.csv, and optionally arrivals/WORKLOAD_SEED.txt\n\
    with .ranks, and expected/. Files may be compressed (.gz). Missing arrivals are drawn at random.\n\
    With -f or --context: how many more pods like yours fit your nodes, now and after changes.\n\n\
    Examples:\n  tautline simulate --trace rule-providers/gpu-slice/simulator/data/openb --policy tautline,fgd,best-fit\n  \
    tautline simulate --trace rule-providers/gpu-slice/simulator/data/openb --workload default --seeds 42,43,44 --dir report\n  \
    tautline simulate --trace rule-providers/gpu-slice/simulator/data/openb --ties random --churn 10 -o json\n  \
    tautline simulate --context production --what-if slices=250m --what-if add=10xh200x8,cpu=192,memory=2Ti"
)]
pub(crate) struct Args {
    /// A recorded cluster: the folder of its nodes, pods and arrivals
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "kubeconfig", "context", "what_if"])]
    trace: Option<PathBuf>,
    /// Workloads of the trace, or all
    #[arg(
        short,
        long,
        value_name = "W,...",
        value_delimiter = ',',
        default_value = "default"
    )]
    workload: Vec<String>,
    /// Policies: tautline, fgd, best-fit, packing, spread; dra-first-fit: Tautline's node, and
    /// the first card with enough left, as kube-scheduler allocates devices
    #[arg(
        short,
        long,
        value_name = "P,...",
        value_delimiter = ',',
        default_value = "tautline"
    )]
    policy: Vec<Contender>,
    /// Orders of arrivals [default: 42; for your own nodes 42 to 51]
    #[arg(short, long, value_name = "N,...", value_delimiter = ',')]
    seeds: Vec<u64>,
    /// Choice between equally good nodes: first, or random as kube-scheduler does
    #[arg(long, default_value = "first")]
    ties: Ties,
    /// A second experiment with pods that leave, and this many times the arrivals
    #[arg(long, value_name = "FACTOR", requires = "trace",
        value_parser = clap::value_parser!(u32).range(i64::from(tautline_gpu_simulator::churn::LEAST_FACTOR)..=1000))]
    churn: Option<u32>,
    /// Write a page with charts and tables to this folder
    #[arg(long, value_name = "DIR", requires = "trace")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    manifests: NamespacedManifestArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// A change to your nodes: slices=250m, or add=COUNTxPRODUCTxCARDS[,cpu=N][,memory=N]
    #[arg(long, value_name = "CHANGE")]
    what_if: Vec<Change>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    match &args.trace {
        Some(dir) => trace::run(dir, &args)?,
        None if args.is_own() => own_cluster::run(&args).await?,
        None => bail!(
            "there is nothing to simulate; write --trace DIR, or -f PATH or --context NAME for \
             your own nodes"
        ),
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn is_own(&self) -> bool {
        self.manifests.manifests.is_given()
            || self.cluster.context.is_some()
            || self.cluster.kubeconfig.is_some()
            || !self.what_if.is_empty()
    }

    fn seeds_or(&self, default: impl Iterator<Item = u64>) -> Vec<u64> {
        match self.seeds.as_slice() {
            [] => default.collect(),
            some => some.to_vec(),
        }
    }
}
