//! Where policies are worked out: at once on the thread that serves the request, or
//! on one that may take its time. Handing a request over, and back, costs as much
//! as a policy or two.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use tautline_mutating_policy::{ClusterView, Outcome, Request, Settings};

use super::store::ActivePolicies;

/// What takes longer keeps other requests of its thread waiting too long.
const INLINE_TIME: Duration = Duration::from_millis(3);
/// A single step on a larger object may.
const INLINE_BYTES: usize = 32 << 10;
/// After one that took longer so many are not tried: trying is lost time then.
const SKIPPED_AFTER_TIMEOUT: u32 = 16;

/// The server is stopping.
pub(super) struct Stopping;

/// One request with all that it needs.
pub(super) struct EvaluationTask<W> {
    pub active: Arc<ActivePolicies>,
    pub request: Request,
    pub cluster: W,
    /// Of the review that it came in.
    pub bytes: usize,
    /// When it must be done.
    pub deadline: Instant,
    /// Whether it may wait for others.
    pub may_block: bool,
}

impl<W: ClusterView> EvaluationTask<W> {
    fn run(&self, by: Instant) -> Outcome {
        let mut settings = Settings::default();
        settings.limits.deadline = Some(by);
        let policies = &self.active.policies;
        policies.mutate(&self.request, &self.cluster, &settings)
    }
}

/// Works requests out.
#[derive(Default)]
pub(crate) struct Executor {
    /// Requests that are still not to be tried.
    inline_skips_left: AtomicU32,
}

impl Executor {
    pub(super) async fn evaluate<W>(&self, task: EvaluationTask<W>) -> Result<Outcome, Stopping>
    where
        W: ClusterView + Send + Sync + 'static,
    {
        if let Some(outcome) = self.try_inline(&task) {
            return Ok(outcome);
        }
        match tokio::task::spawn_blocking(move || task.run(task.deadline)).await {
            Ok(outcome) => Ok(outcome),
            // It becomes a failed review: HTTP 500 and a log line.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Stopping),
            },
        }
    }

    /// The outcome, if there is one in a short time: nothing was stopped then.
    fn try_inline<W: ClusterView>(&self, task: &EvaluationTask<W>) -> Option<Outcome> {
        if task.may_block || task.bytes > INLINE_BYTES {
            return None;
        }
        let less = |n: u32| n.checked_sub(1);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.inline_skips_left.fetch_update(set, get, less).is_ok() {
            return None;
        }
        let by = task.deadline.min(Instant::now() + INLINE_TIME);
        let outcome = task.run(by);
        if Instant::now() < by {
            return Some(outcome);
        }
        self.inline_skips_left
            .store(SKIPPED_AFTER_TIMEOUT, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tautline_mutating_policy::{FaultKind, Policies, StaticCluster};

    use super::*;

    fn task(bytes: usize, waits: bool, left: Duration) -> EvaluationTask<StaticCluster> {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]});
        let label = "Object{metadata: Object.metadata{labels: {'a': object.metadata.name}}}";
        let of = |kind, spec| json!({"apiVersion": "tautline.io/v1alpha1", "kind": kind, "metadata": {"name": "p"}, "spec": spec});
        let policy = json!({"matchConstraints": {"resourceRules": [rule]}, "failurePolicy": "Fail",
            "reinvocationPolicy": "Never", "mutations": [{"patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": label}}]});
        let policy = of("MutationPolicy", policy);
        let binding = of("MutationPolicyBinding", json!({"policyName": "p"}));
        let policies = Policies::load([&policy, &binding]).0;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"}});
        EvaluationTask {
            active: Arc::new(ActivePolicies {
                policies,
                ..ActivePolicies::default()
            }),
            request: Request::create(pod).unwrap(),
            cluster: StaticCluster::default(),
            bytes,
            deadline: Instant::now() + left,
            may_block: waits,
        }
    }

    #[tokio::test]
    async fn the_outcome_is_the_same_wherever_it_is_worked_out() {
        let worker = Executor::default();
        let long = Duration::from_secs(60);
        for (bytes, waits) in [(0, false), (0, true), (INLINE_BYTES + 1, false)] {
            let outcome = worker.evaluate(task(bytes, waits, long)).await;
            let changed = &outcome.ok().unwrap().audit_annotations()[0];
            assert_eq!(*changed, ("changed-by", "p/p".to_owned()), "{bytes}");
        }
    }

    #[tokio::test]
    async fn what_takes_long_is_not_tried_for_a_while() {
        let worker = Executor::default();
        let late = worker.evaluate(task(0, false, Duration::ZERO)).await;
        assert_eq!(late.ok().unwrap().faults[0].kind, FaultKind::Budget);
        assert_eq!(
            worker.inline_skips_left.load(Ordering::Relaxed),
            SKIPPED_AFTER_TIMEOUT
        );
        let long = Duration::from_secs(60);
        assert!(worker.try_inline(&task(0, false, long)).is_none());
        assert_eq!(
            worker.inline_skips_left.load(Ordering::Relaxed),
            SKIPPED_AFTER_TIMEOUT - 1
        );
    }
}
