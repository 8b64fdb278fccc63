//! Runs `tautline-nvml`, and starts it again when it ends or is silent.

mod calls;
mod lost_cards;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tautline_nvml::{Reading, Reply};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep, timeout};
use tracing::{info, warn};

use calls::Open;
pub(crate) use calls::{Calls, ReaderCalls};

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
    pub(crate) reading: Option<Arc<Reading>>,
    /// The state of the reader.
    pub(crate) state: ReaderState,
    /// The number of starts of the reader after the first one.
    pub(crate) restarts: u64,
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

/// The command that runs the reader, and its time limits.
#[derive(Clone, Debug)]
pub(crate) struct ReaderConfig {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// The time in which the first reading must arrive; without persistence mode NVML starts each
    /// card.
    pub(crate) start_limit: Duration,
    /// The longest time without a line.
    pub(crate) silence_limit: Duration,
    /// The first pause before a restart; it doubles up to `no_driver_pause`.
    pub(crate) first_pause: Duration,
    /// The pause before a restart on a node without a driver.
    pub(crate) no_driver_pause: Duration,
    /// The age of the last reading at which all cards count as faulty.
    pub(crate) stale_after: Duration,
}

impl ReaderConfig {
    /// Creates a configuration with time limits that real cards meet. `program` defaults to the one
    /// next to the agent's executable.
    pub(crate) fn new(
        program: Option<PathBuf>,
        driver_root: &Path,
        library: Option<&Path>,
    ) -> io::Result<Self> {
        let program = match program {
            Some(program) => program,
            None => std::env::current_exe()?.with_file_name(PROGRAM),
        };
        let mut arguments = vec!["--driver-root".into(), driver_root.into()];
        if let Some(library) = library {
            arguments.extend(["--library".into(), library.into()]);
        }
        Ok(Self {
            program,
            arguments,
            start_limit: Duration::from_secs(90),
            silence_limit: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
            no_driver_pause: Duration::from_secs(60),
            stale_after: Duration::from_secs(60),
        })
    }
}

/// Runs the reader forever, and passes commands on to it; the reader ends when this future is
/// dropped.
pub(crate) async fn run(config: ReaderConfig, output: watch::Sender<Snapshot>, mut calls: Calls) {
    let shared = Output {
        sender: output,
        last_read: parking_lot::Mutex::new(Instant::now()),
    };
    tokio::select! {
        () = supervise(&config, &shared, &mut calls) => {}
        () = watch_age(&config, &shared) => {}
    }
}

struct Output {
    sender: watch::Sender<Snapshot>,
    last_read: parking_lot::Mutex<Instant>,
}

impl Output {
    fn read(&self, reading: Reading) {
        *self.last_read.lock() = Instant::now();
        self.sender.send_modify(|snapshot| {
            let reading = lost_cards::listed(snapshot.reading.as_deref(), reading);
            snapshot.reading = Some(Arc::new(reading));
            snapshot.state = ReaderState::Reading;
        });
    }

    fn fail(&self, end: &End) {
        self.sender.send_modify(|snapshot| match end {
            End::NoDriver(why) => {
                let known = snapshot.reading.as_deref();
                snapshot.reading =
                    known.map(|reading| Arc::new(lost_cards::all_faulty(reading, "NoDriver")));
                snapshot.state = ReaderState::NoDriver(why.clone());
            }
            End::Failed(why) => snapshot.state = ReaderState::Failing(why.clone()),
        });
    }

    fn age(&self) -> Duration {
        self.last_read.lock().elapsed()
    }
}

/// The way in which a run of the reader ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    NoDriver(String),
    Failed(String),
}

async fn supervise(config: &ReaderConfig, output: &Output, calls: &mut Calls) {
    let mut pause = config.first_pause;
    let mut last_end = None;
    loop {
        let start = Instant::now();
        let end = attempt(config, output, calls).await;
        output.fail(&end);
        if last_end.as_ref() != Some(&end) {
            match &end {
                End::NoDriver(why) => info!(reason = %why, "no NVIDIA driver on this node: idle"),
                End::Failed(why) => warn!(reason = %why, "the reader of GPUs ended; restarting it"),
            }
        }
        // A reader that ran this long does not fail repeatedly.
        if start.elapsed() > config.no_driver_pause {
            pause = config.first_pause;
        }
        let wait = match end {
            End::NoDriver(_) => config.no_driver_pause,
            End::Failed(_) => pause,
        };
        last_end = Some(end);
        sleep(wait).await;
        pause = (pause * 2).min(config.no_driver_pause);
        output.sender.send_modify(|snapshot| snapshot.restarts += 1);
    }
}

/// Marks all cards as faulty once the last reading is too old.
async fn watch_age(config: &ReaderConfig, output: &Output) {
    let mut tick = interval(AGE_TICK.min(config.stale_after));
    loop {
        tick.tick().await;
        if output.age() < config.stale_after {
            continue;
        }
        output.sender.send_if_modified(|snapshot| {
            let Some(reading) = snapshot.reading.as_deref() else {
                return false;
            };
            let is_stale = reading.cards.iter().any(|card| card.fault.is_none());
            if is_stale {
                snapshot.reading = Some(Arc::new(lost_cards::all_faulty(reading, "Unreadable")));
            }
            is_stale
        });
    }
}

async fn attempt(config: &ReaderConfig, output: &Output, calls: &mut Calls) -> End {
    let spawned = Command::new(&config.program)
        .args(&config.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            return End::Failed(format!(
                "{} does not start: {error}",
                config.program.display()
            ));
        }
    };
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return End::Failed("the reader has no pipes".into());
    };
    let mut open = Open::new(stdin);
    let messages = tokio::spawn(read_messages(stderr));
    let silence = read_lines(config, output, stdout, (calls, &mut open)).await;
    drop(open);
    let end = end(config, &mut child, silence).await;
    match (end, timeout(config.silence_limit, messages).await) {
        (Ended::ByItself(status), Ok(Ok(message))) => end_of(status, &message),
        (Ended::ByItself(status), _) => end_of(status, ""),
        (Ended::ByForce(why), _) => End::Failed(why),
    }
}

enum Ended {
    ByItself(ExitStatus),
    ByForce(String),
}

/// Waits for the end of the reader, and kills it if it was silent or does not end in time.
async fn end(config: &ReaderConfig, child: &mut Child, silence: Option<String>) -> Ended {
    if silence.is_none()
        && let Ok(Ok(status)) = timeout(config.silence_limit, child.wait()).await
    {
        return Ended::ByItself(status);
    }
    let why = silence.unwrap_or_else(|| "it closed its output and did not end".into());
    if let Err(error) = child.start_kill() {
        return Ended::ByForce(format!("{why}; it cannot be killed: {error}"));
    }
    if timeout(config.silence_limit, child.wait()).await.is_err() {
        // The kernel does not interrupt the call: another reader would hang as well.
        warn!(
            pid = child.id(),
            "the reader of GPUs hangs in the driver; waiting for its end"
        );
        if let Err(error) = child.wait().await {
            warn!(%error, "the end of the reader of GPUs is unknown");
        }
    }
    Ended::ByForce(why)
}

fn end_of(status: ExitStatus, message: &str) -> End {
    let why = match message {
        "" => status.to_string(),
        message => message.to_owned(),
    };
    match status.code() {
        Some(EXIT_NO_DRIVER) => End::NoDriver(why),
        _ => End::Failed(why),
    }
}

/// Reads lines until stdout ends, and then returns `None`, or until a line is late or invalid, and
/// then returns the reason.
async fn read_lines(
    config: &ReaderConfig,
    output: &Output,
    stdout: ChildStdout,
    (calls, open): (&mut Calls, &mut Open),
) -> Option<String> {
    let mut lines = BufReader::new(stdout);
    let mut limit = config.start_limit;
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
            Ok(reading) => output.read(reading),
            Err(error) => return Some(format!("its output is not a reading: {error}")),
        }
        limit = config.silence_limit;
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
