//! Implements `tautline gpu`, which shows the use of GPUs, their fragmentation, and the cards of a
//! pod.

pub(crate) mod bar;
mod explain;
mod fragmentation;
mod source;
mod top;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
#[command(
    after_help = "Reads a cluster (--context) or manifests (-f), and changes nothing. top places the\n\
                  waiting pods of manifests, as tautline plan and the console do.\n\n\
                  Examples:\n  tautline gpu top\n  tautline gpu fragmentation --context production\n  \
                  tautline gpu explain vision/detector-4 -f examples/gpu-slices"
)]
pub(crate) enum Command {
    /// The cards of each node: used, free, and free but not usable by expected requests
    #[command(
        after_help = "~ marks a guessed card: the device plugin chose it and does not report it.\n\
                      FRAGMENTED is the idle part that the next request is not expected to be able to use.\n\
                      USED is the memory in use and the time that the card is busy, where an agent runs\n\
                      (tautline agent gpu); it is read from the provider's admin ports, through the API\n\
                      server (create pods/portforward).\n\n\
                      Examples:\n  tautline gpu top\n  tautline gpu top --sort fragmented\n  \
                      tautline gpu top --node slice-1 -o json\n  tautline gpu top -f examples/gpu-slices"
    )]
    Top(top::Args),
    /// Requests that cannot use the idle GPU, and why
    #[command(
        visible_alias = "frag",
        after_help = "The requests are those of all present pods, waiting ones included. Where an agent runs, parts\n\
                      of cards that pods have and hardly use at this moment count as given and idle.\n\n\
                      Examples:\n  tautline gpu fragmentation\n  tautline gpu fragmentation -f examples/gpu-slices -o yaml"
    )]
    Fragmentation(fragmentation::Args),
    /// The cards of a pod, or why it waits
    #[command(after_help = "The nodes come best first; > marks the pod's own.\n\n\
                      Examples:\n  tautline gpu explain vision/detector-4\n  \
                      tautline gpu explain detector-4 -n vision --policy packing\n  \
                      tautline gpu explain vision/segmenter-2 -f examples/gpu-slices")]
    Explain(explain::Args),
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Top(args) => top::run(args).await,
        Command::Fragmentation(args) => fragmentation::run(args).await,
        Command::Explain(args) => explain::run(args).await,
    }
}

#[cfg(test)]
mod tests {
    pub(super) mod fixtures;
}
