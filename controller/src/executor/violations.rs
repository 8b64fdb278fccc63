//! The task that acts on violations while this replica leads.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::{task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{Context, attempt::attempt, cluster_calls::ClusterCalls};
use crate::{
    binding_spec::Key,
    clock::Now,
    violations::{Attempt, AttemptResult},
};

/// The interval at which attempts are started.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    let tracker = &context.violations;
    let mut attempts: JoinSet<(Key, Option<AttemptResult>)> = JoinSet::new();
    let mut tick = tokio::time::interval(ATTEMPT_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = attempts.join_next() => {
                // A join error cannot occur: panics are caught, and no task is aborted.
                if let Ok((offer, result)) = ended {
                    tracker.lock().finish(&offer, result, Now::read().instant);
                }
                continue;
            }
            _ = tick.tick() => {}
        }
        let Some(term) = context.leader.borrow().clone() else {
            continue;
        };
        let next = tracker.lock().next_attempts(Now::read());
        for attempt in next {
            let calls = ClusterCalls {
                context: Arc::clone(&context),
                term: term.clone(),
            };
            attempts.spawn(run_attempt(calls, attempt));
        }
    }
    while attempts.join_next().await.is_some() {}
}

async fn run_attempt(calls: ClusterCalls, next: Attempt) -> (Key, Option<AttemptResult>) {
    let offer = Arc::clone(&next.offer);
    let result = AssertUnwindSafe(attempt(&calls, next)).catch_unwind().await;
    if result.is_err() {
        tracing::error!(%offer, "an attempt to act on violations panicked");
    }
    (offer, result.ok())
}
