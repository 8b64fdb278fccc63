//! Runs evaluations inline or on the blocking pool. Using the pool costs as much as evaluating one
//! or two policies.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use tautline_mutating_policy::{ClusterView, Outcome, Request, Settings};

use super::store::ActivePolicies;

/// The longest inline evaluation. It is limited because it delays other requests of the thread.
const MAX_INLINE_TIME: Duration = Duration::from_millis(3);
/// The size of the largest review that is evaluated inline, in bytes. One step on a larger object
/// may take longer than the time limit.
const MAX_INLINE_BYTES: usize = 32 << 10;
/// The number of evaluations that skip the inline attempt after one that timed out.
const SKIPPED_AFTER_TIMEOUT: u32 = 16;

pub(super) struct Stopping;

pub(super) struct EvaluationTask<W> {
    pub active: Arc<ActivePolicies>,
    pub request: Request,
    pub cluster: W,
    pub bytes: usize,
    pub deadline: Instant,
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

#[derive(Default)]
pub(crate) struct Executor {
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
            // The server answers HTTP 500 and logs the panic.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Stopping),
            },
        }
    }

    fn try_inline<W: ClusterView>(&self, task: &EvaluationTask<W>) -> Option<Outcome> {
        if task.may_block || task.bytes > MAX_INLINE_BYTES {
            return None;
        }
        let less = |n: u32| n.checked_sub(1);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.inline_skips_left.fetch_update(set, get, less).is_ok() {
            return None;
        }
        let by = task.deadline.min(Instant::now() + MAX_INLINE_TIME);
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
    async fn outcome_is_the_same_inline_and_on_the_pool() {
        let worker = Executor::default();
        let long = Duration::from_secs(60);
        for (bytes, waits) in [(0, false), (0, true), (MAX_INLINE_BYTES + 1, false)] {
            let outcome = worker.evaluate(task(bytes, waits, long)).await;
            let changed = &outcome.ok().unwrap().audit_annotations()[0];
            assert_eq!(*changed, ("changed-by", "p/p".to_owned()), "{bytes}");
        }
    }

    #[tokio::test]
    async fn timeout_suspends_inline_evaluation() {
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
