//! Supervised long-lived tasks that stop together.

use std::{future::Future, pin::Pin, time::Duration};

use anyhow::{Context, Result, anyhow};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{admin::Readiness, os};

const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Tasks that must run until the stop. If one task ends early, all are stopped.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<(String, Result<()>)>,
    stop: CancellationToken,
}

impl Tasks {
    /// The token that stops every task.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Spawns a task, which must end only after the stop token is cancelled.
    pub fn spawn(&mut self, name: &str, task: impl Future<Output = Result<()>> + Send + 'static) {
        self.spawn_boxed(name.to_owned(), Box::pin(task));
    }

    /// Spawns a task. It is boxed, so that tokio's part of a task is compiled once, not for each.
    fn spawn_boxed(
        &mut self,
        name: String,
        task: Pin<Box<dyn Future<Output = Result<()>> + Send>>,
    ) {
        self.set.spawn(async move { (name, task.await) });
    }

    /// Spawns a task that may be dropped at any await point when the process stops.
    pub fn spawn_until_stop(&mut self, name: &str, task: impl Future + Send + 'static) {
        let stop = self.stop_token();
        self.spawn(name, async move {
            stop.run_until_cancelled(task).await;
            Ok(())
        });
    }

    /// Waits until `until` completes or a task ends early, then stops all tasks.
    ///
    /// # Errors
    /// A task ended early or failed; the error names it.
    pub async fn run(mut self, until: impl Future<Output = ()>) -> Result<()> {
        let early = tokio::select! {
            () = until => Ok(()),
            () = self.stop.cancelled() => Ok(()),
            Some(ended) = self.set.join_next() => match ended {
                _ if self.stop.is_cancelled() => Ok(()),
                Ok((name, Ok(()))) => Err(anyhow!("task {name:?} ended by itself")),
                Ok((name, Err(e))) => Err(e).with_context(|| format!("task {name:?} failed")),
                Err(e) => Err(anyhow!("a task panicked: {e}")),
            },
        };
        self.stop.cancel();
        let rest = async { while self.set.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, rest).await.is_err() {
            tracing::warn!("tasks did not stop in {STOP_TIMEOUT:?}; leaving them");
        }
        early
    }
}

/// Completes on SIGTERM or SIGINT (Ctrl-C).
pub async fn shutdown_signal() {
    tokio::select! {
        () = os::terminate_signal() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Completes on SIGTERM or SIGINT; logs that `what` is ready, if that happens first.
pub async fn ready_then_shutdown_signal(readiness: Readiness, what: &str) {
    let mut signal = std::pin::pin!(shutdown_signal());
    tokio::select! {
        () = &mut signal => return,
        () = readiness.wait() => tracing::info!("{what} ready"),
    }
    signal.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn run_stops_all_tasks_when_one_ends_early() {
        let mut tasks = Tasks::default();
        let stop = tasks.stop_token();
        let (sent, received) = tokio::sync::oneshot::channel();
        tasks.spawn("steady", async move {
            stop.cancelled().await;
            _ = sent.send(());
            Ok(())
        });
        tasks.spawn("short", async { Ok(()) });
        let error = tasks.run(std::future::pending()).await.unwrap_err();
        assert_eq!(error.to_string(), "task \"short\" ended by itself");
        received.await.unwrap();
    }

    #[tokio::test]
    async fn run_returns_an_error_only_for_a_panic() {
        let mut tasks = Tasks::default();
        tasks.spawn("bad", async { panic!("on purpose") });
        assert!(tasks.run(std::future::pending()).await.is_err());

        let mut tasks = Tasks::default();
        let stop = tasks.stop_token();
        tasks.spawn("steady", async move {
            stop.cancelled().await;
            Ok(())
        });
        tasks.run(async {}).await.unwrap();
    }
}
