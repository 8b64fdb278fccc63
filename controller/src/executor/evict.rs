//! Evicts a pod of a violated binding if the violation still holds, a new plan names a better
//! place, the workload is ready, and the disruption budgets allow it.

use std::sync::Arc;

use tautline_api::constraint::LastEviction;
use tautline_core::{Compliance, Snapshot, compliance_state::UnixTime, model::Offer};

use super::calls::{Calls, Report};
use crate::{
    binding_status::{from_api_time, to_api_time},
    eviction::{
        Candidate, EvictAnswer, Refusal, as_unbound, better_node, check_pod, choose, pods_of,
        running_pod,
    },
    violations::Violation,
};

/// Evicts one pod of the binding and returns the time; a refusal is reported.
/// `last`: the last eviction for this offer.
pub(super) async fn evict<C: Calls>(
    calls: &C,
    offer: &Offer,
    violation: &Violation,
    last: Option<UnixTime>,
) -> Result<UnixTime, Refusal> {
    let result = try_evict(calls, offer, violation, last).await;
    if let Err(Refusal { code, text }) = &result {
        report(calls, violation, code, true, text.clone());
    }
    result
}

async fn try_evict<C: Calls>(
    calls: &C,
    offer: &Offer,
    violation: &Violation,
    last: Option<UnixTime>,
) -> Result<UnixTime, Refusal> {
    match calls.reevaluate(&violation.binding).await {
        Compliance::Violation => {}
        Compliance::Error => {
            let text = "the violation could not be evaluated again at this moment";
            return Err(Refusal::new("NotEvaluated", text));
        }
        _ => {
            let text = "the violation does not hold any more";
            return Err(Refusal::new("Stale", text));
        }
    }
    let snapshot = calls.snapshot();
    let mut candidates = Vec::new();
    for (target, name) in pods_of(&violation.binding, offer) {
        let candidate = candidate(calls, &snapshot, offer, name, last).await;
        candidates.push((Arc::clone(target), candidate));
    }
    let candidate = choose(candidates)?;
    let turn = calls.eviction_turn().await;
    if turn.is_none() || !calls.leads() {
        return Err(Refusal::lost_lead());
    }
    evict_candidate(calls, offer, violation, &candidate).await
}

async fn candidate<C: Calls>(
    calls: &C,
    snapshot: &Snapshot,
    offer: &Offer,
    name: &str,
    last: Option<UnixTime>,
) -> Result<Candidate, Refusal> {
    let (settings, namespace) = (calls.settings(), &*offer.namespace);
    let (known, node) = running_pod(snapshot, &settings.exempt_namespaces, namespace, name)?;
    let object = calls.get_pod(namespace, name).await.map_err(|error| {
        let text = format!("pod {namespace}/{name}: {error}");
        Refusal::new("Failed", text)
    })?;
    let now = calls.now().unix;
    check_pod(&object, known, last, settings.eviction_cool_down, now)?;
    let pod = as_unbound(object.clone());
    let plan = calls.plan(snapshot, offer, &pod).await;
    Ok(Candidate {
        target: better_node(&plan, &node)?,
        pod,
        object,
        node,
    })
}

async fn evict_candidate<C: Calls>(
    calls: &C,
    offer: &Offer,
    violation: &Violation,
    candidate: &Candidate,
) -> Result<UnixTime, Refusal> {
    let (pod, better) = (&candidate.pod, &candidate.target.node);
    calls.check_workload(&candidate.object).await?;
    let plan = format!(
        "pod {}/{} on {}: {}; {better} would keep to every rule",
        pod.namespace, pod.name, candidate.node, candidate.target.why
    );
    // A disruption budget that refuses this must not be noted as an eviction.
    match calls.evict(candidate, true).await {
        EvictAnswer::Done => {}
        EvictAnswer::Refused(refusal) => return Err(refusal),
        EvictAnswer::Lost(why) => return Err(Refusal::new("Failed", why)),
    }
    if calls.settings().dry_run {
        let text = format!("would evict {plan}");
        report(calls, violation, "WouldEvict", false, text);
        return Ok(calls.now().unix);
    }
    if !calls.leads() {
        return Err(Refusal::lost_lead());
    }
    let at = to_api_time(calls.now().unix);
    let note = LastEviction {
        pod: pod.name.to_string(),
        uid: pod.uid.to_string(),
        node: candidate.node.to_string(),
        binding: violation.binding.name.to_string(),
        time: at.clone(),
    };
    calls
        .note_eviction(offer, &note)
        .await
        .map_err(|e| Refusal::new("Failed", format!("the eviction could not be recorded: {e}")))?;
    if !calls.leads() {
        return Err(Refusal::lost_lead());
    }
    match calls.evict(candidate, false).await {
        EvictAnswer::Done => {
            let text = format!("evicted {plan}");
            tracing::info!(binding = %violation.binding.key(), "{text}");
            report(calls, violation, "Evicted", false, text.clone());
            let because = format!(
                "binding {} of offer {} was violated ({}); {better} would keep to every rule",
                violation.binding.name, offer.name, violation.reason
            );
            calls.report_evicted_pod(offer, pod, because, text);
        }
        EvictAnswer::Refused(refusal) => return Err(refusal),
        // The next eviction waits as if this one was carried out.
        EvictAnswer::Lost(why) => {
            let text = format!("the eviction's answer is lost ({why}): {plan}");
            report(calls, violation, "Unknown", true, text);
        }
    }
    Ok(from_api_time(&at))
}

fn report<C: Calls>(
    calls: &C,
    violation: &Violation,
    code: &'static str,
    warning: bool,
    text: String,
) {
    let report = Report {
        action: "Evict",
        code,
        warning,
        text,
    };
    calls.report(violation, report);
}
