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

mod control;
mod daemon;
mod files;
#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tautline_nvml::{Card, Reading};
use tautline_runtime::{
    admin::{self, Readiness},
    tasks::{self, Tasks},
};
use tokio::{process::Command, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    LimitError, bind,
    driver_root::{DriverError, DriverRoot, run as run_program},
    memory_mib, percent,
};
use crate::{assignment::Part, cdi::Edits, reader::ReaderCommand};

/// The time in which a reading must arrive; NVML takes seconds on a node with many cards without
/// the persistence daemon.
const READING_DEADLINE: Duration = Duration::from_secs(60);

tautline_runtime::metrics! {
    /// The metrics of all daemons, by card; clones share all values.
    pub struct Metrics {
        up: Family<CardLabel, Gauge>
            => "gpu_mps_up", "1 while the card's MPS control daemon answers";
        clients: Family<CardLabel, Gauge>
            => "gpu_mps_clients", "Processes that use the card by MPS, at the last check";
        restarts: Family<CardLabel, Counter>
            => "gpu_mps_restarts", "Starts of the card's MPS control daemon after the first";
        lost: Family<CardLabel, Counter> => "gpu_mps_clients_lost",
            "Processes that were clients of an MPS server when it ended";
    }
    labels CardLabel { card: String }
}

impl Metrics {
    fn of_card(&self, card: &str) -> CardMetrics {
        let label = CardLabel {
            card: card.to_owned(),
        };
        CardMetrics {
            up: self.up.get_or_create_owned(&label),
            clients: self.clients.get_or_create_owned(&label),
            restarts: self.restarts.get_or_create_owned(&label),
            lost: self.lost.get_or_create_owned(&label),
        }
    }
}

/// The metrics of one card's daemon.
#[derive(Clone, Debug)]
struct CardMetrics {
    up: Gauge,
    clients: Gauge,
    restarts: Counter,
    lost: Counter,
}

/// The settings of `tautline agent mps`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The root directory where the driver is installed.
    pub driver: DriverRoot,
    /// The parent of the directories that containers mount, with the same path on the host, below
    /// the driver's root and here.
    pub run_dir: PathBuf,
    /// The program that lists the cards.
    pub reader: ReaderCommand,
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

/// Returns the changes that an MPS client needs in its container, if the card's daemon is ready.
pub(super) fn ready_edits(run_dir: &Path, cards: &[Part]) -> Result<Edits, LimitError> {
    let edits = edits(run_dir, cards)?;
    match cards {
        [(card, _)] if !files::is_ready(run_dir, &card.uuid) => {
            Err(LimitError::NoDaemon(card.uuid.clone()))
        }
        _ => Ok(edits),
    }
}

/// Returns the changes that an MPS client needs in its container.
///
/// The pipe directory is mounted read-only, at the same path as on the host: connecting to a socket
/// needs no write access to the file system, and so a container cannot remove the socket that
/// others use. `/dev/shm` is not shared: drivers since Volta's MPS leave it empty (observed with
/// driver 580), and pods mount their own volumes there.
pub(super) fn edits(run_dir: &Path, cards: &[Part]) -> Result<Edits, LimitError> {
    let [(card, milli)] = cards else {
        let all = cards.iter().map(|(c, milli)| format!("{}:{milli}", c.uuid));
        return Err(LimitError::SeveralCards(all.collect::<Vec<_>>().join(",")));
    };
    let pipe = files::pipe_dir(run_dir, &card.uuid);
    let path = pipe.to_string_lossy().into_owned();
    let memory = memory_mib(card.memory_bytes, *milli);
    let memory = memory.map(|mib| ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", format!("0={mib}M")));
    let percent = percent(*milli).to_string();
    let env = [
        ("CUDA_MPS_PIPE_DIRECTORY", path.clone()),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent),
    ];
    let env = env.into_iter().chain(memory);
    Ok(Edits {
        env: env.map(|(k, v)| (k.to_owned(), v)).collect(),
        mounts: vec![bind(pipe, &path, false)],
        ..Edits::default()
    })
}

/// Runs daemons for the node's cards until SIGTERM or SIGINT.
///
/// # Errors
/// The admin port is taken, or a task ended by itself.
pub async fn run(config: Config) -> Result<()> {
    let readiness = Readiness::default();
    let mut registry = Registry::with_prefix("tautline");
    let metrics = Metrics::registered("", &mut registry);
    let listener = admin::bind(config.admin).await?;
    let mut all = Tasks::default();
    let stop = all.stop_token();
    let (registry, no_pages) = (Arc::new(registry), |_| async { None });
    let served = admin::serve(
        listener,
        registry,
        readiness.clone(),
        no_pages,
        stop.clone(),
    );
    all.spawn("admin port", served);
    all.spawn("MPS daemons", serve(config, metrics, readiness, stop));
    all.run(tasks::shutdown_signal()).await
}

/// Runs daemons for the node's cards until `stop`. A card's condition in `readiness` is met while
/// its daemon answers; a node without cards is ready.
async fn serve(
    config: Config,
    metrics: Metrics,
    readiness: Readiness,
    stop: CancellationToken,
) -> Result<()> {
    let cards = tokio::select! {
        cards = find_cards(&config) => cards,
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

/// Waits until the node has cards, and returns those that are not in MIG mode. The list is final,
/// since cards come and go only with the driver.
async fn find_cards(config: &Config) -> Vec<Card> {
    let mut last = String::new();
    loop {
        let fault = match read_cards(&config.reader).await {
            Ok(cards) if cards.is_empty() => "the node has no cards without MIG".to_owned(),
            Ok(cards) => return cards,
            Err(e) => format!("no cards are known: {e}"),
        };
        if fault != last {
            tracing::info!(
                "{fault}; idle, looking again every {:?}",
                config.timing.cards
            );
            last = fault;
        }
        tokio::time::sleep(config.timing.cards).await;
    }
}

async fn read_cards(reader: &ReaderCommand) -> Result<Vec<Card>, DriverError> {
    let mut command = Command::new(&reader.program);
    command.args(&reader.arguments).arg("--once");
    command.kill_on_drop(true);
    let name = reader.program.display().to_string();
    let text = run_program(&name, command, "", READING_DEADLINE).await?;
    let reading: Reading = serde_json::from_str(&text)
        .map_err(|e| DriverError::Failed(name, format!("its output is not a reading: {e}")))?;
    let mut cards = reading.cards;
    cards.retain(|card| {
        if card.mig.is_some() {
            tracing::info!(card = card.uuid, "no MPS daemon: the card is in MIG mode");
        }
        card.mig.is_none()
    });
    Ok(cards)
}
