//! Helpers for the channels between the agent's tasks.

use tokio::sync::{mpsc, oneshot, watch};

/// A question to a task, and the way of its answer.
pub(crate) type Call<Q, A> = (Q, oneshot::Sender<A>);

/// The reason, as a text, why a task or the kubelet could not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(pub String);

impl Failure {
    /// Returns the failure of a task that has ended.
    pub fn stopping() -> Self {
        Self("the agent stops".to_owned())
    }
}

/// Asks a task, and returns its answer; `None` if the task has ended.
pub(crate) async fn ask<Q, A>(task: &mpsc::Sender<Call<Q, A>>, question: Q) -> Option<A> {
    let (reply, answer) = oneshot::channel();
    task.send((question, reply)).await.ok()?;
    answer.await.ok()
}

/// Sets the value, wakes the receivers if it is another one, and returns whether it is.
pub(crate) fn set<T: PartialEq>(sender: &watch::Sender<T>, value: T) -> bool {
    sender.send_if_modified(|now| {
        let changed = *now != value;
        *now = value;
        changed
    })
}
