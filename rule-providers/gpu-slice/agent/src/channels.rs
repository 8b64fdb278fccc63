//! Helpers for the channels between the agent's tasks.

use tokio::sync::{mpsc, oneshot, watch};

/// A question to a task, and the way of its answer.
pub(crate) type Call<Q, A> = (Q, oneshot::Sender<A>);

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
