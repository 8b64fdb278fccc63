//! The cost of one EndpointCost over 5,000 nodes to the rule providers. Prints a Markdown table.
//!
//! ```text
//! cargo run --release -p tautline-bench --bin tautline-bench-providers -- gpu-slice
//! cargo run --release -p tautline-bench --bin tautline-bench-providers -- latency
//! ```

mod gpu_slice;
mod latency;

use std::net::SocketAddr;

use anyhow::Result;
use clap::Parser;

/// The cost of one EndpointCost over 5,000 nodes to a rule provider.
#[derive(Parser)]
enum Provider {
    /// A row for each placement policy: after one pod was added or removed (cached costs), after
    /// the distribution has changed (all costs computed again), and for the first request.
    GpuSlice,
    /// `latency`, `jitter` and `bandwidth` for three peers, without probes.
    ///
    /// With an address it also serves agents there, waits for them, and requests measured and
    /// predicted pairs. The agents: `tautline-bench-agents agents 5000 127.0.0.1:5309 120`.
    Latency {
        /// Where agents connect, for instance 127.0.0.1:5309.
        listen: Option<SocketAddr>,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    match Provider::parse() {
        Provider::GpuSlice => gpu_slice::run().await,
        Provider::Latency { listen } => latency::run(listen).await,
    }
}
