//! The task that acts on violations while this replica leads.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use tautline_runtime::lease::Term;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    attempt::attempt, calls::AttemptSettings, cluster_calls::ClusterCalls, context::Context,
};
use crate::{
    binding_spec::Key,
    clock::Now,
    violations::{Attempt, AttemptResult, ViolationTracker},
};

/// The interval at which attempts are started.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) async fn run(
    context: Arc<Context>,
    mut leader: watch::Receiver<Option<Term>>,
    stop: CancellationToken,
) {
    let mut tracker = ViolationTracker::default();
    let mut attempts: JoinSet<(Key, Option<AttemptResult>)> = JoinSet::new();
    let settings = Arc::new(AttemptSettings {
        dry_run: context.config.dry_run,
        eviction_cool_down: context.config.eviction_cool_down,
        protecting_annotations: context.config.protecting_annotations.clone(),
        exempt_namespaces: context.config.exempt_namespaces.clone(),
        trusted: context.trusted().clone(),
    });
    let eviction_turn = Arc::new(Semaphore::new(1));
    let mut term = leader.borrow_and_update().clone();
    let mut tick = tokio::time::interval(ATTEMPT_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            changed = leader.changed() => {
                if changed.is_err() { break }
                term = leader.borrow_and_update().clone();
                if term.is_none() {
                    while attempts.join_next().await.is_some() {}
                    context.violations.inbox.lock().drain();
                    tracker.clear();
                }
                continue;
            }
            () = context.violations.filled.notified() => {
                let events = context.violations.inbox.lock().drain();
                events.into_iter().for_each(|event| tracker.apply_event(event));
                continue;
            }
            Some(ended) = attempts.join_next() => {
                // A join error cannot occur: panics are caught, and no task is aborted.
                if let Ok((offer, result)) = ended {
                    tracker.finish(&offer, result, Now::read().instant);
                }
                continue;
            }
            _ = tick.tick() => {}
        }
        let Some(term) = &term else { continue };
        for attempt in tracker.next_attempts(Now::read()) {
            let calls = ClusterCalls {
                context: Arc::clone(&context),
                settings: Arc::clone(&settings),
                term: term.clone(),
                eviction_turn: Arc::clone(&eviction_turn),
            };
            attempts.spawn(run_attempt(calls, attempt));
        }
    }
    while attempts.join_next().await.is_some() {}
    drop(term);
    // The process itself reports an error of the leader election.
    stop.cancelled().await;
}

async fn run_attempt(calls: ClusterCalls, next: Attempt) -> (Key, Option<AttemptResult>) {
    let offer = Arc::clone(&next.offer);
    let result = AssertUnwindSafe(attempt(&calls, next)).catch_unwind().await;
    if result.is_err() {
        tracing::error!(%offer, "an attempt to act on violations panicked");
    }
    (offer, result.ok())
}
