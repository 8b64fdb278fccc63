//! Starts, checks and ends the control daemon of one card.

use std::{
    fs, io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tautline_gpu_placement::shape::CARD_MILLI;
use tautline_nvml::Card;
use tautline_runtime::admin::Readiness;
use tokio::{
    process::Child,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    CardMetrics, Config, Metrics,
    control::{Control, Server},
    files,
};
use crate::{
    backoff::Backoff,
    limits::{DriverError, memory_mib, percent, smi},
};

/// The longest wait before a daemon is started again, and the run time at which it counts as having
/// started well, so that the waits begin again.
const MAX_RESTART_WAIT: Duration = Duration::from_secs(60);

/// The number of checks in a row without an answer after which a daemon counts as hanging.
const MAX_FAILED_CHECKS: u32 = 3;

/// The way in which a run of a daemon ended.
enum End {
    Stopped,
    Exited(ExitStatus),
    Hung,
}

/// The supervisor of a card's control daemon.
pub(super) struct Daemon {
    config: Config,
    card: Card,
    control: Control,
    metrics: CardMetrics,
    readiness: Readiness,
    condition: String,
}

impl Daemon {
    pub fn new(config: &Config, card: Card, metrics: &Metrics, readiness: Readiness) -> Self {
        let condition = format!("MPS of card {}", card.uuid);
        readiness.expect(&condition);
        let (driver, deadline) = (config.driver.clone(), config.timing.command);
        Self {
            config: config.clone(),
            control: Control::new(driver, &config.run_dir, &card.uuid, deadline),
            metrics: metrics.of_card(&card.uuid),
            card,
            readiness,
            condition,
        }
    }

    /// Runs the daemon, and restarts it when it ends, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let card = self.card.uuid.as_str();
        let mut backoff = Backoff::new(self.config.timing.restart, MAX_RESTART_WAIT);
        self.set_ready(None);
        loop {
            let start = Instant::now();
            match self.run_once(&stop).await {
                Ok(End::Stopped) => break,
                Ok(End::Exited(status)) => {
                    let log = files::last_log_line(&self.control.log);
                    tracing::warn!(card, %status, log, "the MPS control daemon ended");
                }
                Ok(End::Hung) => tracing::warn!(card, "the MPS control daemon hung; it was killed"),
                Err(e) => tracing::warn!(card, "the MPS control daemon does not start: {e}"),
            }
            self.set_ready(None);
            self.metrics.clients.set(0);
            let wait = backoff.wait(start.elapsed());
            tokio::select! {
                () = sleep(wait) => {}
                () = stop.cancelled() => break,
            }
            self.metrics.restarts.inc();
        }
        self.set_ready(None);
        self.metrics.clients.set(0);
        self.set_exclusive(false).await;
    }

    async fn run_once(&self, stop: &CancellationToken) -> Result<End, DriverError> {
        let start = async {
            let file_error = |e| DriverError::Io(format!("MPS of card {}", self.card.uuid), e);
            self.end_leftover().await.map_err(file_error)?;
            let errors = files::open_log(&self.control.log).map_err(file_error)?;
            self.set_exclusive(true).await;
            let flag = self.control.multi_user_flag().await?;
            if flag.is_none() {
                tracing::warn!(
                    card = self.card.uuid,
                    "this driver's MPS serves one user at a time: containers of other users wait; \
                     run them as the same user, or update the driver"
                );
            }
            let mut command = self.control.daemon(flag.as_deref())?;
            if self.config.largest_share < CARD_MILLI {
                // Clients may connect before the daemon gets its default limits by command.
                let percent = percent(self.config.largest_share).to_string();
                command.env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent);
                if let Some(mib) = self.largest_memory_mib() {
                    command.env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", format!("0={mib}M"));
                }
            }
            command.stdin(Stdio::null()).process_group(0);
            command.stdout(errors.try_clone().map_err(file_error)?);
            command.stderr(errors);
            command.spawn().map_err(file_error)
        };
        let child = tokio::select! {
            child = start => child?,
            () = stop.cancelled() => return Ok(End::Stopped),
        };
        Ok(self.watch(child, stop).await)
    }

    async fn watch(&self, mut child: Child, stop: &CancellationToken) -> End {
        let group = Group::of(&child);
        let (mut answered, mut failures) = (false, 0);
        let mut servers: Vec<Server> = Vec::new();
        let mut defaults = self.config.largest_share >= CARD_MILLI;
        loop {
            let pause = if answered {
                self.config.timing.check
            } else {
                self.config.timing.first_check
            };
            let check = async {
                sleep(pause).await;
                self.control.servers().await
            };
            let checked = tokio::select! {
                status = child.wait() => {
                    // Servers outlive a daemon that was killed.
                    group.kill();
                    self.lose(&servers);
                    return status.map_or(End::Hung, End::Exited);
                }
                () = stop.cancelled() => {
                    self.quit(child, group).await;
                    return End::Stopped;
                }
                checked = check => checked,
            };
            let card = self.card.uuid.as_str();
            match checked {
                Ok(running) => {
                    if !answered {
                        tracing::info!(card, "the MPS control daemon answers");
                    }
                    (answered, failures) = (true, 0);
                    servers.retain(|server| running.iter().all(|now| now.pid != server.pid));
                    self.lose(&servers);
                    servers = running;
                    defaults = defaults || self.set_defaults().await;
                }
                Err(e) => {
                    tracing::debug!(card, "a check of the MPS control daemon failed: {e}");
                    failures += 1;
                }
            }
            if failures >= MAX_FAILED_CHECKS {
                group.kill();
                _ = child.wait().await;
                self.lose(&servers);
                return End::Hung;
            }
            let ready = answered && failures == 0 && defaults;
            self.set_ready(child.id().filter(|_| ready));
            let clients: usize = servers.iter().map(|s| s.clients.len()).sum();
            self.metrics
                .clients
                .set(clients.try_into().unwrap_or(i64::MAX));
            files::bound_logs(&self.control.log);
        }
    }

    /// Ends a daemon that an earlier process left, and empties the pipe directory. The directory
    /// itself stays, since containers have it mounted.
    async fn end_leftover(&self) -> io::Result<()> {
        let pipe = &self.control.pipe;
        fs::create_dir_all(pipe)?;
        fs::create_dir_all(&self.control.log)?;
        if pipe.join("control").exists() && self.control.quit().await.is_ok() {
            let ends = async {
                while self.control.servers().await.is_ok() {
                    sleep(self.config.timing.first_check).await;
                }
            };
            _ = timeout(self.config.timing.quit, ends).await;
        }
        for entry in fs::read_dir(pipe)? {
            let path = entry?.path();
            if path.is_dir() {
                fs::remove_dir_all(path)?;
            } else {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    async fn quit(&self, mut child: Child, group: Group) {
        let card = self.card.uuid.as_str();
        let ends = async {
            if let Err(e) = self.control.quit().await {
                tracing::warn!(card, "the MPS control daemon does not quit: {e}");
            }
            _ = child.wait().await;
        };
        if timeout(self.config.timing.quit, ends).await.is_err() {
            tracing::warn!(card, "the MPS control daemon did not quit; it is killed");
        }
        group.kill();
        _ = child.wait().await;
    }

    /// Sets the limits of clients that set no limits, and returns whether they are in force.
    async fn set_defaults(&self) -> bool {
        let memory = self.largest_memory_mib();
        let percent = percent(self.config.largest_share);
        let set = self.control.set_defaults(percent, memory).await;
        if let Err(e) = &set {
            let card = self.card.uuid.as_str();
            tracing::warn!(card, "the largest share is not in force yet: {e}");
        }
        set.is_ok()
    }

    fn largest_memory_mib(&self) -> Option<u64> {
        memory_mib(self.card.memory_bytes, self.config.largest_share)
    }

    async fn set_exclusive(&self, exclusive: bool) {
        if !self.config.exclusive {
            return;
        }
        let card = self.card.uuid.as_str();
        if let Err(e) = smi::set_exclusive(&self.config.driver, card, exclusive).await {
            tracing::warn!(card, exclusive, "the compute mode is not set: {e}");
        }
    }

    fn set_ready(&self, daemon: Option<u32>) {
        let card = self.card.uuid.as_str();
        if let Err(e) = files::set_ready(&self.config.run_dir, card, daemon) {
            tracing::warn!(
                card,
                "the agent does not learn of the MPS control daemon: {e}"
            );
        }
        self.readiness.set(&self.condition, daemon.is_some());
        self.metrics.up.set(daemon.is_some().into());
    }

    /// Counts and logs the clients of servers that have ended.
    fn lose(&self, servers: &[Server]) {
        for server in servers.iter().filter(|s| !s.clients.is_empty()) {
            let clients = server.clients.len();
            self.metrics.lost.inc_by(clients.try_into().unwrap_or(0));
            tracing::warn!(
                card = self.card.uuid,
                server = server.pid,
                clients = ?server.clients,
                "an MPS server ended; its clients at the last check have lost their contexts, and \
                 their containers must restart"
            );
        }
    }
}

/// The process group of a daemon and its servers.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| id.try_into().ok());
        Self(id.map(Pid::from_raw))
    }

    fn kill(&self) {
        if let Some(group) = self.0 {
            // An error means that all processes have ended.
            _ = killpg(group, Signal::SIGKILL);
        }
    }
}
