//! Evicting a pod of a violated binding, only where that helps and only safely:
//! the violation holds at this moment, a plan made now names another node, nothing
//! else of the workload is down, and the disruption budgets allow it.

mod plan;
mod workload;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, EvictParams, PostParams, Preconditions},
};
use tautline_api::constraint::LastEviction;
use tautline_core::{Compliance, compliance_state::UnixTime, model::Offer};
use tautline_runtime::{
    events::{EventNote, reference_to_own, reference_to_pod},
    lease::Term,
};
use tokio::sync::Semaphore;

use crate::{
    app::Shared,
    decisions::Decision,
    evict::plan::Candidate,
    status::{moment_of, now, time_of},
    violations::{Case, stands},
    write,
};

/// The most that one call of the Eviction API may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// The same refusal of the same binding is not told again for so long.
const QUIET: Duration = Duration::from_secs(300);

/// Why nothing is evicted for a binding now.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {text}")]
pub(crate) struct Refusal {
    code: &'static str,
    text: String,
}

impl Refusal {
    fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    pub(crate) fn retry_after(&self) -> Duration {
        match self.code {
            // These pass soon.
            "ReplicaDown" | "Stale" => Duration::from_secs(2),
            "DisruptionBudget" => Duration::from_secs(5),
            _ => Duration::from_secs(10),
        }
    }
}

/// What came of an attempt.
pub(crate) enum Outcome {
    /// At this time; or it may have been, the answer is lost.
    Evicted(UnixTime),
    Refused(Refusal),
}

/// How the Eviction API answered.
enum Answer {
    Done,
    Refused(Refusal),
    /// It may have been done.
    Lost(String),
}

pub(crate) struct Evictor {
    shared: Arc<Shared>,
    /// One eviction at a time, whatever the offer.
    turn: Semaphore,
}

impl Evictor {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            turn: Semaphore::new(1),
        }
    }

    /// Evicts one pod of the binding, or says why none.
    /// `last`: when a pod was evicted for this offer before.
    pub(crate) async fn evict(
        &self,
        term: &Term,
        offer: &Offer,
        case: &Case,
        last: Option<UnixTime>,
    ) -> Outcome {
        match self.try_to_evict(term, offer, case, last).await {
            Ok(at) => Outcome::Evicted(at),
            Err(refusal) => {
                self.tell(case, refusal.code, true, &refusal.text);
                Outcome::Refused(refusal)
            }
        }
    }

    async fn try_to_evict(
        &self,
        term: &Term,
        offer: &Offer,
        case: &Case,
        last: Option<UnixTime>,
    ) -> Result<UnixTime, Refusal> {
        match stands(&self.shared, case).await {
            Compliance::Violation => {}
            Compliance::Error => {
                let text = "it cannot be told at this moment whether the violation still holds";
                return Err(Refusal::new("NotEvaluated", text));
            }
            _ => {
                let text = "the violation does not hold any more";
                return Err(Refusal::new("Stale", text));
            }
        }
        let snapshot = self.shared.feed.snapshot();
        let candidate = self.choose(&snapshot, offer, case, last).await?;
        let turn = self.turn.acquire().await;
        if turn.is_err() || !term.is_active() {
            return Err(Refusal::new("Stale", "this replica leads no more"));
        }
        self.evict_now(term, offer, case, &candidate).await
    }

    /// The last looks, and the eviction: one at a time.
    async fn evict_now(
        &self,
        term: &Term,
        offer: &Offer,
        case: &Case,
        candidate: &Candidate,
    ) -> Result<UnixTime, Refusal> {
        let pod = &candidate.pod;
        workload::all_up(&self.shared.client, &candidate.object).await?;
        let plan = format!(
            "pod {}/{} on {}: {}; {} would keep to every rule",
            pod.namespace, pod.name, candidate.node, candidate.why, candidate.better
        );
        let pods: Api<Pod> = Api::namespaced(self.shared.client.clone(), &pod.namespace);
        // Asked without effect first: a budget's refusal is no eviction.
        match call(&pods, candidate, true).await {
            Answer::Done => {}
            Answer::Refused(refusal) => return Err(refusal),
            Answer::Lost(why) => return Err(Refusal::new("Failed", why)),
        }
        if self.shared.config.dry_run {
            self.tell(case, "WouldEvict", false, &format!("would evict {plan}"));
            return Ok(now());
        }
        let leads_no_more = || Refusal::new("Stale", "this replica leads no more");
        if !term.is_active() {
            return Err(leads_no_more());
        }
        let at = time_of(now());
        let note = LastEviction {
            pod: pod.name.to_string(),
            uid: pod.uid.to_string(),
            node: candidate.node.to_string(),
            binding: case.binding.name.to_string(),
            time: at.clone(),
        };
        write::evicting(self.shared.client.clone(), offer, &note)
            .await
            .map_err(|e| Refusal::new("Failed", format!("the eviction could not be noted: {e}")))?;
        if !term.is_active() {
            return Err(leads_no_more());
        }
        match call(&pods, candidate, false).await {
            Answer::Done => self.evicted(offer, case, candidate, &plan),
            Answer::Refused(refusal) => return Err(refusal),
            // It counts as done: the next must wait as if it were.
            Answer::Lost(why) => {
                let text = format!("the eviction's answer is lost ({why}): {plan}");
                self.tell(case, "Unknown", true, &text);
            }
        }
        Ok(moment_of(&at))
    }

    fn evicted(&self, offer: &Offer, case: &Case, candidate: &Candidate, plan: &str) {
        tracing::info!(binding = %case.binding.key(), "evicted {plan}");
        self.tell(case, "Evicted", false, &format!("evicted {plan}"));
        let (ns, pod) = (&offer.namespace, &candidate.pod);
        let because = format!(
            "binding {} of offer {} was violated ({}); {} would keep to every rule",
            case.binding.name, offer.name, case.reason, candidate.better
        );
        let of_offer = reference_to_own("ConstraintPolicyOffer", ns, &offer.name, &offer.uid);
        let of_pod = reference_to_pod(ns, &pod.name, &pod.uid);
        let say = |regarding, secondary, text| {
            self.shared.events.publish(EventNote {
                regarding,
                secondary,
                warning: false,
                reason: "Evicted".to_owned(),
                action: "Evict",
                text,
            });
        };
        say(of_pod.clone(), None, because);
        say(of_offer, Some(of_pod), format!("evicted {plan}"));
    }

    fn tell(&self, case: &Case, code: &'static str, warning: bool, text: &str) {
        self.shared.metrics.eviction(code);
        let decision = Decision::of(case, "Evict", code, text);
        self.shared.decisions.push(decision);
        let id = format!("{}/{code}", case.binding.key());
        let quiet = if warning { QUIET } else { Duration::ZERO };
        self.shared.events.publish_once(id, quiet, || {
            Some(EventNote {
                regarding: case.regarding(),
                secondary: None,
                warning,
                reason: code.to_owned(),
                action: "Evict",
                text: text.to_owned(),
            })
        });
    }
}

/// Calls the Eviction API; it asks the disruption budgets.
async fn call(pods: &Api<Pod>, candidate: &Candidate, dry_run: bool) -> Answer {
    let pod = &candidate.pod;
    let params = EvictParams {
        delete_options: Some(DeleteParams {
            // Never the pod's replacement.
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.to_string()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        }),
        post_options: PostParams {
            dry_run,
            ..PostParams::default()
        },
    };
    let id = format!("pod {}/{}", pod.namespace, pod.name);
    let refused = |code, text: String| Answer::Refused(Refusal::new(code, text));
    match tokio::time::timeout(DEADLINE, pods.evict(&pod.name, &params)).await {
        Ok(Ok(_)) => Answer::Done,
        Ok(Err(kube::Error::Api(status))) => match status.code {
            429 => refused("DisruptionBudget", format!("{id}: {}", status.message)),
            404 | 409 => refused("Stale", format!("{id} is gone, or another")),
            400..500 => refused("Failed", format!("{id}: {}", status.message)),
            _ => Answer::Lost(status.message),
        },
        Ok(Err(error)) => Answer::Lost(error.to_string()),
        Err(_) => Answer::Lost(format!("no answer within {DEADLINE:?}")),
    }
}
