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

/// Name of the program beside the agent's.
const PROGRAM: &str = "tautline-nvml";
/// Exit status of a reader that finds no library or driver.
const NO_DRIVER: i32 = 3;
/// Longest line: some thousand processes.
const MAX_LINE: u64 = 4 << 20;
/// Longest message of the reader's that is kept.
const MAX_MESSAGE: u64 = 1024;
/// A message without another one or the end after this time is not the last one.
const MESSAGE_PAUSE: Duration = Duration::from_millis(500);
/// Time between two looks at the age of the last reading.
const AGE_TICK: Duration = Duration::from_secs(1);

/// What the agent knows of its node's cards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The last reading, in which lost cards stay listed with a fault; `None`: no card was ever
    /// seen.
    pub(crate) reading: Option<Arc<Reading>>,
    /// State of the reader.
    pub(crate) state: ReaderState,
    /// Starts of the reader after the first one.
    pub(crate) restarts: u64,
}

/// State of the reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReaderState {
    /// It has not read yet.
    #[default]
    Starting,
    /// It reads.
    Reading,
    /// The node has no NVIDIA library or driver; the reason.
    NoDriver(String),
    /// It ended or was silent; the reason.
    Failing(String),
}

/// How to run the reader.
#[derive(Clone, Debug)]
pub(crate) struct ReaderConfig {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// Time until the first reading: without persistence mode NVML starts each card.
    pub(crate) start_limit: Duration,
    /// Time without a line.
    pub(crate) silence_limit: Duration,
    /// The first pause before a restart; it doubles up to `no_driver_pause`.
    pub(crate) first_pause: Duration,
    /// Pause on a node without a driver.
    pub(crate) no_driver_pause: Duration,
    /// Age of the last reading at which no card counts as sound any more.
    pub(crate) stale_after: Duration,
}

impl ReaderConfig {
    /// Limits that hold on real cards. `program`: default beside the agent's executable.
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

/// Reads for ever, and passes commands on; the reader ends with this future.
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

/// How a run of the reader ended.
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
        // A reader that held out is not failing again and again.
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

/// Marks all cards once the last reading is too old.
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

/// Waits for the reader's end, and ends it if need be.
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
        Some(NO_DRIVER) => End::NoDriver(why),
        _ => End::Failed(why),
    }
}

/// Reads until stdout ends (`None`), or a line is late or wrong.
async fn read_lines(
    config: &ReaderConfig,
    output: &Output,
    stdout: ChildStdout,
    (calls, open): (&mut Calls, &mut Open),
) -> Option<String> {
    let mut lines = BufReader::new(stdout);
    let mut limit = config.start_limit;
    loop {
        let next = timeout(limit, line(&mut lines, MAX_LINE));
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

/// Passes commands on until the future is done.
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

/// A line without its end; `None`: the stream ended.
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

/// Logs the reader's messages until it closes stderr, but for the last one, which it returns: that
/// says why the reader ended.
async fn read_messages(stderr: ChildStderr) -> String {
    let mut stream = BufReader::new(stderr);
    let mut last = String::new();
    let mut unlogged = false;
    loop {
        let mut piece = Vec::new();
        let mut limited = (&mut stream).take(MAX_MESSAGE);
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
