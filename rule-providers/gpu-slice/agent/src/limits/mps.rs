//! Runs NVIDIA's Multi-Process Service (MPS): a control daemon for each card, which starts the
//! server that holds the CUDA contexts of the card's clients.
//!
//! # A daemon per card, not per node
//! With a daemon per card, the crash of a server or the reset of a card affects only the clients of
//! that card, and a card that NVML has lost does not prevent other cards' daemons from starting. In
//! return, a container can reach only one card by MPS: a container with parts of several cards is
//! refused ([`super::LimitError::SeveralCards`]), but the provider never assigns such parts to one
//! request. A daemon without clients occupies nothing on its card, so every card has a daemon.
//!
//! # Users
//! Containers run as different users. By default a server serves one user at a time, and clients of
//! other users wait until it has no clients. The flag `-multiuser-server` lifts this limit if the
//! driver supports it, which the program's help shows at the start of each daemon.
//!
//! # The process
//! The process runs in a DaemonSet of its own, since clients end with the daemon. It needs the
//! host's process IDs (the server looks itself up in `/proc`, and identifies clients by process
//! ID), the run directory both at its own path and below the driver's root, and the host's devices.

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

/// The settings of `tautline agent mps`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The root directory where the driver is installed.
    pub driver: DriverRoot,
    /// The parent of the directories that containers mount, with the same path on the host, below
    /// the driver's root and here.
    pub run_dir: PathBuf,
    /// The cards that get a daemon.
    pub cards: CardSource,
    /// True if only the MPS server may use the cards, so that a process cannot evade MPS. A
    /// container with a whole card can then run only one process on it.
    pub exclusive: bool,
    /// The largest part of a card that a client gets, in thousandths, whatever its own limits are.
    pub largest_share: u16,
    /// The address of `/livez`, `/readyz` and `/metrics`.
    pub admin: SocketAddr,
    /// The waits and deadlines of the supervisor.
    pub timing: Timing,
}

/// The waits and deadlines of the supervisor.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The time from a daemon's start to the first check, and between checks until one succeeds.
    pub first_check: Duration,
    /// The time between checks after the first success.
    pub check: Duration,
    /// The time in which the daemon must answer a command.
    pub command: Duration,
    /// The time in which a daemon must end after `quit`.
    pub quit: Duration,
    /// The time from a daemon's end to its next start; it doubles up to a minute.
    pub restart: Duration,
    /// The time from a search that finds no cards to the next one.
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

/// Returns the directory by which clients find the daemon of a card.
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
    metrics.register("", &mut registry);
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

/// Runs daemons for the node's cards until `stop`. A card's condition in `readiness` is met while
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
