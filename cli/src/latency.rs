//! Implements `tautline latency`, which shows the network as the rule provider of latency sees it.

mod heat;
mod matrix;
mod pair;
mod source;
mod top;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
#[command(
    after_help = "The commands read the provider's admin ports, through the API server (create\n\
                  pods/portforward); they change and measure nothing. With -f they show the tables of\n\
                  manifests, whose waiting pods are placed as by tautline plan.\n\n\
                  Examples:\n  tautline latency matrix\n  tautline latency matrix -f examples/edge-inference --provider-namespaces vision\n  tautline latency pair node-1 node-2\n  tautline latency top"
)]
pub(crate) enum Command {
    /// Round-trip times between zones or nodes, as a heat map
    #[command(
        after_help = "Figures of zones are medians over pairs of their nodes.\n\n\
                      Examples:\n  tautline latency matrix\n  tautline latency matrix --zone eu-west-1a\n  \
                      tautline latency matrix --nodes node-1,node-2,node-3\n  \
                      tautline latency matrix -o svg >zones.svg"
    )]
    Matrix(matrix::Args),
    /// The measurements of a pair of nodes, and the figure that rules get
    #[command(
        after_help = "Examples:\n  tautline latency pair node-1 node-2\n  tautline latency pair node-1 node-2 -o json"
    )]
    Pair(pair::Args),
    /// The pairs of nodes that active rules name, the worst first
    #[command(after_help = "SHARE is the round-trip time over the rule's limit.\n\n\
                      Examples:\n  tautline latency top\n  tautline latency top -n 100 -o json")]
    Top(top::Args),
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Matrix(args) => matrix::run(args).await,
        Command::Pair(args) => pair::run(args).await,
        Command::Top(args) => top::run(args).await,
    }
}
