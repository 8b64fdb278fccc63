//! A provider that reserves, as a process.

use std::sync::Arc;

use anyhow::Result;
use kube::Client;
use tautline_runtime::tasks::{self, Tasks};
use tautline_sdk::{Allocator, RuleProvider, Server};

use super::{Config, Replicas};

/// Serves `provider` with its reservations until SIGTERM or Ctrl-C; without a
/// configuration as the only replica.
///
/// # Errors
/// TLS files that do not load, or a task that fails.
pub async fn serve<P: RuleProvider + Allocator>(
    mut server: Server,
    provider: P,
    config: Option<Config>,
    client: Client,
    mut tasks: Tasks,
) -> Result<()> {
    let provider = Arc::new(provider);
    let inner = Arc::clone(&provider);
    let allocator = match config {
        None => Replicas::alone(inner, &mut server),
        Some(config) => Replicas::of_lease(inner, config, client, &mut server, &mut tasks)?,
    };
    tracing::info!(address = %server.address(), "rule provider listening");
    server.spawn_with_allocator(provider, allocator, &mut tasks)?;
    tasks.run(tasks::signal()).await
}
