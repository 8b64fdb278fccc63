//! Sends commands to the reader, which answers on its stdout between the readings.

use std::{collections::HashMap, io, time::Duration};

use tautline_nvml::{Action, Command, Outcome, Reply};
use tokio::{
    io::AsyncWriteExt,
    process::ChildStdin,
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::channels::{self, Call};

/// The time in which the reader must answer a command.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The time in which a line must be written; the reader reads lines at once.
const WRITE_LIMIT: Duration = Duration::from_secs(1);
/// The largest number of commands that wait while the reader restarts.
const MAX_WAITING_COMMANDS: usize = 16;

/// A handle to ask the reader to make and destroy MIG instances.
#[derive(Clone, Debug)]
pub(crate) struct ReaderCalls(mpsc::Sender<Call<Action, Outcome>>);

/// The receiving end of [`ReaderCalls`].
pub(crate) type Calls = mpsc::Receiver<Call<Action, Outcome>>;

impl ReaderCalls {
    pub fn new() -> (Self, Calls) {
        let (sender, calls) = mpsc::channel(MAX_WAITING_COMMANDS);
        (Self(sender), calls)
    }

    /// Asks the reader to do the action, and returns the outcome; an unknown outcome is an
    /// [`Outcome::Error`] with the reason.
    pub async fn ask(&self, action: Action) -> Outcome {
        match timeout(ANSWER_LIMIT, channels::ask(&self.0, action)).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Outcome::Error("the reader of GPUs ended meanwhile".to_owned()),
            Err(_) => {
                let late = format!("the reader of GPUs did not answer in {ANSWER_LIMIT:?}");
                Outcome::Error(late)
            }
        }
    }
}

/// The commands that one run of the reader has not answered yet.
pub(super) struct Open {
    stdin: ChildStdin,
    last: u64,
    calls: HashMap<u64, oneshot::Sender<Outcome>>,
}

impl Open {
    pub fn new(stdin: ChildStdin) -> Self {
        Self {
            stdin,
            last: 0,
            calls: HashMap::new(),
        }
    }

    /// Passes a command on to the reader, unless its caller no longer waits.
    pub async fn send(&mut self, (action, answer): Call<Action, Outcome>) -> io::Result<()> {
        self.calls.retain(|_, answer| !answer.is_closed());
        if answer.is_closed() {
            return Ok(());
        }
        self.last += 1;
        let id = self.last;
        let mut line = serde_json::to_vec(&Command { id, action })?;
        line.push(b'\n');
        self.calls.insert(id, answer);
        timeout(WRITE_LIMIT, self.stdin.write_all(&line)).await?
    }

    /// Passes a reply on to the caller, which may no longer wait.
    pub fn answer(&mut self, reply: Reply) {
        if let Some(answer) = self.calls.remove(&reply.id) {
            _ = answer.send(reply.outcome);
        }
    }
}
