//! Implements `tautline export`, which writes the effect of offers in Kubernetes' own terms.

mod affinity;
mod source;
mod subject;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
#[command(after_help = "Example:\n  tautline export affinity shop/clients")]
pub(crate) enum Command {
    /// The zones, or other groups of nodes, that can meet the limits of an offer, as node affinity
    #[command(
        after_help = "It asks the extender how it would decide on a pod of the offer's first Pod target now: the first\n\
        pending pod by name, else the first pod, else one with labels that the target selects. The rules of\n\
        all offers that select this pod count. A value is named if one of its nodes is usable, or would be\n\
        without some of its pods: an autoscaler's new node there has room. Taints and free resources are not\n\
        looked at. The values hold for today: export again when the pods that the limits are about move.\n\n\
        It reads the offer, pods of its namespace and nodes, and calls the extender through the API server\n\
        (create pods/portforward). With -f the extender and the built-in providers run here; waiting pods of\n\
        other targets are placed first, as by tautline plan.\n\n\
        Exit code 1: no such offer, no value, or a rule without an answer.\n\n\
        Examples:\n  tautline export affinity shop/clients\n  \
        tautline export affinity shop/clients --by cloud.google.com/gke-nodepool -o yaml\n  \
        tautline export affinity vision/aggregators -f examples/edge-inference"
    )]
    Affinity(affinity::Args),
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Affinity(args) => affinity::run(args).await,
    }
}
