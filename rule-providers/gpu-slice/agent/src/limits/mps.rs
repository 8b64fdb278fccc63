//! NVIDIA's Multi-Process Service: a control daemon for each card, which starts the server that has
//! the contexts of the card's clients.
//!
//! # A daemon per card, not per node
//! A server that crashes, and a card that has to be reset, then concern the clients of that card
//! only, and a card that NVML lost does not keep the others from starting. The price is that a
//! container reaches one card by MPS; a container with parts of several cards is refused
//! ([`super::LimitError::SeveralCards`]), which the provider never assigns to one request. A daemon
//! without clients holds nothing on its card, so that all cards have one.
//!
//! # Users
//! Containers run as different users. By default a server serves one user, and clients of others
//! wait until it has no clients. The flag `-multiuser-server` changes that where the driver knows
//! it: its help is read at the start of each daemon.
//!
//! # The process
//! It runs in a DaemonSet of its own, since clients end with the daemon. It needs the host's
//! process IDs (the server looks itself up in `/proc`, and clients are told apart by theirs), the
//! run directory both at its own path and below the driver's root, and the host's devices.

mod backoff;
mod cards;
mod control;
mod daemon;
mod health;
mod logs;
mod metrics;
mod ready;
#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use prometheus_client::registry::Registry;
use tautline_runtime::{
    admin::{self, Readiness},
    tasks::{self, Tasks},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use cards::{Card, CardSource, NvmlReader};
pub use control::{Control, Server};
pub use metrics::Metrics;
pub use ready::is_ready;

use super::driver_root::DriverRoot;

/// Settings of `tautline agent mps`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the driver is installed.
    pub driver: DriverRoot,
    /// Directories that containers mount; the same path on the host, below the driver's root and
    /// here.
    pub run_dir: PathBuf,
    /// The cards that get a daemon.
    pub cards: CardSource,
    /// Only the MPS server may use the cards, so that a process cannot leave MPS. A container with
    /// a whole card can then start only one process there.
    pub exclusive: bool,
    /// Thousandths of a card that a client gets at most, whatever its own limits say.
    pub largest_share: u16,
    /// Address of `/livez`, `/readyz` and `/metrics`.
    pub admin: SocketAddr,
    /// Waits and deadlines.
    pub timing: Timing,
}

/// Waits and deadlines.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From a daemon's start to the first check, and between checks until one succeeds.
    pub first_check: Duration,
    /// Between checks.
    pub check: Duration,
    /// For the answer to a command.
    pub command: Duration,
    /// For a daemon to end after `quit`.
    pub quit: Duration,
    /// From a daemon's end to its next start; doubles up to a minute.
    pub restart: Duration,
    /// From a fruitless look for cards to the next.
    pub cards: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            first_check: Duration::from_millis(500),
            check: Duration::from_secs(10),
            command: Duration::from_secs(5),
            quit: Duration::from_secs(10),
            restart: Duration::from_secs(1),
            cards: Duration::from_secs(60),
        }
    }
}

/// The directory by which clients find the daemon of a card.
pub fn pipe_dir(run_dir: &Path, card: &str) -> PathBuf {
    run_dir.join("mps").join(card).join("pipe")
}

fn log_dir(run_dir: &Path, card: &str) -> PathBuf {
    run_dir.join("mps").join(card).join("log")
}

/// Runs daemons for the node's cards until SIGTERM or SIGINT.
///
/// # Errors
/// The admin port is taken, or a task ended by itself.
pub async fn run(config: Config) -> Result<()> {
    let (metrics, readiness) = (Metrics::default(), Readiness::default());
    let mut registry = Registry::with_prefix("tautline");
    metrics.register(&mut registry);
    let listener = admin::bind(config.admin).await?;
    let mut all = Tasks::default();
    let stop = all.stop_token();
    let registry = Arc::new(registry);
    let no_pages = |_| async { None };
    all.spawn(
        "admin port",
        admin::serve(
            listener,
            registry,
            readiness.clone(),
            no_pages,
            stop.clone(),
        ),
    );
    all.spawn("MPS daemons", serve(config, metrics, readiness, stop));
    all.run(tasks::shutdown_signal()).await
}

/// Runs daemons for the node's cards until the stop. A card's condition in `readiness` is met while
/// its daemon answers; a node without cards is ready.
///
/// # Errors
/// A daemon's task panicked.
pub async fn serve(
    config: Config,
    metrics: Metrics,
    readiness: Readiness,
    stop: CancellationToken,
) -> Result<()> {
    let cards = tokio::select! {
        cards = cards::find(&config) => cards,
        () = stop.cancelled() => return Ok(()),
    };
    let mut daemons = JoinSet::new();
    for card in cards {
        let daemon = daemon::Daemon::new(&config, card, &metrics, readiness.clone());
        daemons.spawn(daemon.run(stop.clone()));
    }
    while let Some(ended) = daemons.join_next().await {
        ended.context("the task of an MPS daemon failed")?;
        if !stop.is_cancelled() {
            return Err(anyhow!("the task of an MPS daemon ended by itself"));
        }
    }
    stop.cancelled().await;
    Ok(())
}
