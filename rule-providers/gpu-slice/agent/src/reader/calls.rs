//! Sends commands to the reader, which answers on its stdout between the readings.

use std::{collections::HashMap, io, time::Duration};

use tautline_nvml::{Action, Command, Outcome, Reply};
use tokio::{
    io::AsyncWriteExt,
    process::ChildStdin,
    sync::{mpsc, oneshot},
    time::timeout,
};

/// The time in which the reader must answer a command.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The time in which a line must be written; the reader reads lines at once.
const WRITE_LIMIT: Duration = Duration::from_secs(1);
/// The largest number of commands that wait while the reader restarts.
const MAX_WAITING_COMMANDS: usize = 16;

/// A handle to ask the reader to make and destroy MIG instances.
#[derive(Clone, Debug)]
pub(crate) struct ReaderCalls(mpsc::Sender<Call>);

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) action: Action,
    pub(crate) answer: oneshot::Sender<Outcome>,
}

/// The receiving end of [`ReaderCalls`].
pub(crate) type Calls = mpsc::Receiver<Call>;

impl ReaderCalls {
    pub fn new() -> (Self, Calls) {
        let (sender, calls) = mpsc::channel(MAX_WAITING_COMMANDS);
        (Self(sender), calls)
    }

    /// Asks the reader to do the action, and returns the outcome.
    ///
    /// # Errors
    /// The text gives the reason why the outcome is not known.
    pub async fn ask(&self, action: Action) -> Result<Outcome, String> {
        let (answer, answered) = oneshot::channel();
        let call = async {
            let sent = self.0.send(Call { action, answer }).await;
            sent.map_err(|_| "the agent stops".to_owned())?;
            let lost = |_| "the reader of GPUs ended meanwhile".to_owned();
            answered.await.map_err(lost)
        };
        let late = |_| format!("the reader of GPUs did not answer in {ANSWER_LIMIT:?}");
        timeout(ANSWER_LIMIT, call).await.map_err(late)?
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
    pub async fn send(&mut self, call: Call) -> io::Result<()> {
        self.calls.retain(|_, answer| !answer.is_closed());
        if call.answer.is_closed() {
            return Ok(());
        }
        self.last += 1;
        let (id, action) = (self.last, call.action);
        let mut line = serde_json::to_vec(&Command { id, action })?;
        line.push(b'\n');
        self.calls.insert(id, call.answer);
        timeout(WRITE_LIMIT, self.stdin.write_all(&line)).await?
    }

    /// Passes a reply on to the caller, which may no longer wait.
    pub fn answer(&mut self, reply: Reply) {
        if let Some(answer) = self.calls.remove(&reply.id) {
            _ = answer.send(reply.outcome);
        }
    }
}
