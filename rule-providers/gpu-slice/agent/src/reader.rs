//! Runs `tautline-nvml`, and starts it again when it ends or is silent.

mod calls;
mod lost_cards;

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use tautline_nvml::{Reading, Reply};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, ChildStderr, ChildStdout, Command},
    sync::watch,
    time::{Instant, interval, sleep, timeout},
};
use tracing::{info, warn};

use self::calls::Open;
pub(crate) use self::calls::{Calls, ReaderCalls};
use crate::backoff::Backoff;

/// The name of the program, which is next to the agent's executable.
const PROGRAM: &str = "tautline-nvml";
/// The exit status of a reader that finds no library or driver.
const EXIT_NO_DRIVER: i32 = 3;
/// The longest line, in bytes; it has room for some thousand processes.
const MAX_LINE_BYTES: u64 = 4 << 20;
/// The longest message of the reader, in bytes; a longer one is split.
const MAX_MESSAGE_BYTES: u64 = 1024;
/// The time after which a message is logged, if the reader has neither sent another one nor ended.
const MESSAGE_PAUSE: Duration = Duration::from_millis(500);
/// The interval at which the age of the last reading is checked.
const AGE_TICK: Duration = Duration::from_secs(1);

/// The cards of the node as the reader has last reported them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The last reading, in which lost cards stay listed with a fault; `None` before the first
    /// reading.
    pub reading: Option<Arc<Reading>>,
    /// The time of the last reading that the reader has sent.
    pub read_at: Option<Instant>,
    pub state: ReaderState,
    /// The number of starts of the reader after the first one.
    pub restarts: u64,
}

/// The state of the reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReaderState {
    /// The reader has not sent a reading yet.
    #[default]
    Starting,
    /// The reader sends readings.
    Reading,
    /// The node has no NVIDIA library or driver, for this reason.
    NoDriver(String),
    /// The reader ended or was silent, for this reason.
    Failing(String),
}

/// The command that runs the program `tautline-nvml`.
#[derive(Clone, Debug)]
pub struct ReaderCommand {
    /// The path of the program.
    pub program: PathBuf,
    /// The arguments of the program, such as `--driver-root /host`.
    pub arguments: Vec<OsString>,
}

impl ReaderCommand {
    /// Creates a command of the program next to this process's executable. `library` defaults to
    /// the driver's below `driver_root`.
    ///
    /// # Errors
    /// The path of the executable is not known.
    pub fn new(driver_root: &Path, library: Option<&Path>) -> io::Result<Self> {
        let program = std::env::current_exe()?.with_file_name(PROGRAM);
        let mut arguments = vec!["--driver-root".into(), driver_root.into()];
        if let Some(library) = library {
            arguments.extend(["--library".into(), library.into()]);
        }
        Ok(Self { program, arguments })
    }
}

/// The time limits of the reader.
#[derive(Clone, Debug)]
pub(crate) struct ReaderLimits {
    /// The time in which the first reading must arrive; without persistence mode NVML starts each
    /// card.
    start: Duration,
    /// The longest time without a line.
    silence: Duration,
    /// The first pause before a restart; it doubles up to `no_driver_pause`.
    first_pause: Duration,
    /// The pause before a restart on a node without a driver.
    no_driver_pause: Duration,
    /// The age of the last reading at which all cards count as faulty.
    stale_after: Duration,
}

/// Limits that real cards meet.
impl Default for ReaderLimits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(90),
            silence: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
            no_driver_pause: Duration::from_secs(60),
            stale_after: Duration::from_secs(60),
        }
    }
}

/// Runs the reader until the future is dropped, and passes commands on to it.
pub(crate) async fn run(
    command: ReaderCommand,
    limits: ReaderLimits,
    output: watch::Sender<Snapshot>,
    calls: Calls,
) {
    let reader = Reader {
        command,
        limits,
        output,
    };
    tokio::select! {
        () = reader.supervise(calls) => {}
        () = reader.watch_age() => {}
    }
}

struct Reader {
    command: ReaderCommand,
    limits: ReaderLimits,
    output: watch::Sender<Snapshot>,
}

/// The way in which a run of the reader ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    NoDriver(String),
    Failed(String),
}

impl Reader {
    async fn supervise(&self, mut calls: Calls) {
        let no_driver_pause = self.limits.no_driver_pause;
        let mut backoff = Backoff::new(self.limits.first_pause, no_driver_pause);
        let mut last_end = None;
        loop {
            let start = Instant::now();
            let end = self.attempt(&mut calls).await;
            self.fail(&end);
            if last_end.as_ref() != Some(&end) {
                match &end {
                    End::NoDriver(why) => {
                        info!(reason = %why, "no NVIDIA driver on this node: idle");
                    }
                    End::Failed(why) => {
                        warn!(reason = %why, "the reader of GPUs ended; restarting it");
                    }
                }
            }
            let pause = backoff.wait(start.elapsed());
            sleep(match end {
                End::NoDriver(_) => no_driver_pause,
                End::Failed(_) => pause,
            })
            .await;
            last_end = Some(end);
            self.output.send_modify(|snapshot| snapshot.restarts += 1);
        }
    }

    fn fail(&self, end: &End) {
        self.output.send_modify(|snapshot| match end {
            End::NoDriver(why) => {
                let known = snapshot.reading.as_deref();
                snapshot.reading =
                    known.map(|reading| Arc::new(lost_cards::all_faulty(reading, "NoDriver")));
                snapshot.state = ReaderState::NoDriver(why.clone());
            }
            End::Failed(why) => snapshot.state = ReaderState::Failing(why.clone()),
        });
    }

    /// Marks all cards as faulty once the last reading is too old.
    async fn watch_age(&self) {
        let stale_after = self.limits.stale_after;
        let mut tick = interval(AGE_TICK.min(stale_after));
        loop {
            tick.tick().await;
            self.output.send_if_modified(|snapshot| {
                let old = snapshot
                    .read_at
                    .is_some_and(|at| at.elapsed() >= stale_after);
                let Some(reading) = snapshot.reading.as_deref().filter(|_| old) else {
                    return false;
                };
                let is_stale = reading.cards.iter().any(|card| card.fault.is_none());
                if is_stale {
                    let faulty = lost_cards::all_faulty(reading, "Unreadable");
                    snapshot.reading = Some(Arc::new(faulty));
                }
                is_stale
            });
        }
    }

    /// Runs the reader once.
    async fn attempt(&self, calls: &mut Calls) -> End {
        let spawned = Command::new(&self.command.program)
            .args(&self.command.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                let program = self.command.program.display();
                return End::Failed(format!("{program} does not start: {error}"));
            }
        };
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return End::Failed("the reader has no pipes".into());
        };
        let mut open = Open::new(stdin);
        let messages = tokio::spawn(read_messages(stderr));
        let silence = self.read_lines(stdout, calls, &mut open).await;
        drop(open);
        let status = match self.end(&mut child, silence).await {
            Ok(status) => status,
            Err(end) => return end,
        };
        let message = timeout(self.limits.silence, messages).await;
        let why = match message.map(Result::unwrap_or_default) {
            Ok(message) if !message.is_empty() => message,
            _ => status.to_string(),
        };
        match status.code() {
            Some(EXIT_NO_DRIVER) => End::NoDriver(why),
            _ => End::Failed(why),
        }
    }

    /// Waits for the end of the reader, and kills it if it was silent or does not end in time.
    async fn end(&self, child: &mut Child, silence: Option<String>) -> Result<ExitStatus, End> {
        let limit = self.limits.silence;
        if silence.is_none()
            && let Ok(Ok(status)) = timeout(limit, child.wait()).await
        {
            return Ok(status);
        }
        let why = silence.unwrap_or_else(|| "it closed its output and did not end".into());
        if let Err(error) = child.start_kill() {
            return Err(End::Failed(format!("{why}; it cannot be killed: {error}")));
        }
        if timeout(limit, child.wait()).await.is_err() {
            // The kernel does not interrupt the call: another reader would hang as well.
            warn!(
                pid = child.id(),
                "the reader of GPUs hangs in the driver; waiting for its end"
            );
            if let Err(error) = child.wait().await {
                warn!(%error, "the end of the reader of GPUs is unknown");
            }
        }
        Err(End::Failed(why))
    }

    /// Reads lines until stdout ends, and then returns `None`, or until a line is late or invalid,
    /// and then returns the reason.
    async fn read_lines(
        &self,
        stdout: ChildStdout,
        calls: &mut Calls,
        open: &mut Open,
    ) -> Option<String> {
        let mut lines = BufReader::new(stdout);
        let mut limit = self.limits.start;
        loop {
            let next = timeout(limit, line(&mut lines, MAX_LINE_BYTES));
            let line = match while_passing(next, calls, open).await {
                Ok(Ok(line)) => line?,
                Ok(Err(error)) => return Some(format!("its output cannot be read: {error}")),
                Err(_) => return Some(format!("it was silent for {limit:?}")),
            };
            if line.starts_with(Reply::PREFIX) {
                match serde_json::from_slice(&line) {
                    Ok(reply) => open.answer(reply),
                    Err(error) => return Some(format!("its output is not a reply: {error}")),
                }
                continue;
            }
            match serde_json::from_slice(&line) {
                Ok(reading) => self.read(reading),
                Err(error) => return Some(format!("its output is not a reading: {error}")),
            }
            limit = self.limits.silence;
        }
    }

    fn read(&self, reading: Reading) {
        self.output.send_modify(|snapshot| {
            let reading = lost_cards::listed(snapshot.reading.as_deref(), reading);
            snapshot.reading = Some(Arc::new(reading));
            snapshot.read_at = Some(Instant::now());
            snapshot.state = ReaderState::Reading;
        });
    }
}

/// Waits for the future, and passes commands on to the reader meanwhile.
async fn while_passing<F: Future>(future: F, calls: &mut Calls, open: &mut Open) -> F::Output {
    tokio::pin!(future);
    let mut more = true;
    loop {
        tokio::select! {
            output = &mut future => return output,
            call = calls.recv(), if more => match call {
                Some(call) => if let Err(error) = open.send(call).await {
                    warn!(%error, "the reader of GPUs takes no command");
                },
                None => more = false,
            }
        }
    }
}

/// Reads a line of at most `max` bytes and returns it without its line end; `None` if the stream
/// ended.
async fn line(stream: &mut (impl AsyncBufRead + Unpin), max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    stream.take(max).read_until(b'\n', &mut line).await?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a line without end",
        )),
    }
}

/// Logs the reader's messages until it closes stderr, except for the last one. That one is
/// returned, since it gives the reason why the reader ended.
async fn read_messages(stderr: ChildStderr) -> String {
    let mut stream = BufReader::new(stderr);
    let mut last = String::new();
    let mut unlogged = false;
    loop {
        let mut piece = Vec::new();
        let mut limited = (&mut stream).take(MAX_MESSAGE_BYTES);
        let next = limited.read_until(b'\n', &mut piece);
        tokio::pin!(next);
        let count = match timeout(MESSAGE_PAUSE, &mut next).await {
            Ok(count) => count,
            Err(_) => {
                if std::mem::take(&mut unlogged) {
                    warn!(message = %last, "message of the reader of GPUs");
                }
                next.await
            }
        };
        if count.unwrap_or(0) == 0 {
            return last;
        }
        if unlogged {
            warn!(message = %last, "message of the reader of GPUs");
        }
        last = String::from_utf8_lossy(&piece).trim_end().to_owned();
        unlogged = true;
    }
}

#[cfg(test)]
mod tests;
