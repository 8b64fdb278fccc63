//! Evicts a pod of a violated binding if the violation still holds, a new plan has a better node,
//! the workload is ready, and the disruption budgets allow it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tautline_api::constraint::LastEviction;
use tautline_core::{Compliance, Snapshot, model::Offer};

use super::calls::{Calls, Report};
use crate::{
    binding_status::{from_api_time, to_api_time},
    eviction::{
        Candidate, EvictAnswer, EvictionRow, Group, Refusal, Terms, WholeGroup, as_unbound,
        better_node, check_budgets, check_group, check_member, check_pod, choose, is_only_replica,
        pods_of, running_pod,
    },
    violations::Violation,
};

/// The maximum number of pods of a group that are evicted together, with one request per pod.
const MAX_GROUP_PODS: usize = 512;

/// The state of an offer whose turn it is to evict.
pub(super) struct Turn {
    /// The last row of the offer's evictions.
    pub row: Option<EvictionRow>,
    /// The number of pods in violation that the offer may evict.
    pub pods: usize,
}

#[derive(Debug)]
pub(super) enum Evicted {
    /// The eviction was carried out, or reported in a dry run; the row includes it.
    Now(EvictionRow),
    /// The only candidates are of last resort, so the offer's other violations come first.
    AsLastResort,
}

/// Evicts one pod of the binding, with its group if it has one. A refusal is reported, too.
pub(super) async fn evict<C: Calls>(
    calls: &C,
    offer: &Offer,
    violation: &Violation,
    turn: &Turn,
) -> Result<Evicted, Refusal> {
    let result = try_evict(calls, offer, violation, turn).await;
    if let Err(Refusal { code, text }) = &result {
        report(calls, violation, code, true, text.clone());
    }
    result
}

async fn try_evict<C: Calls>(
    calls: &C,
    offer: &Offer,
    violation: &Violation,
    turn: &Turn,
) -> Result<Evicted, Refusal> {
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
        let candidate = candidate(calls, &snapshot, offer, name, turn).await;
        candidates.push((Arc::clone(target), candidate));
    }
    let candidate = choose(candidates)?;
    if candidate.is_last_resort && !violation.last_resort {
        return Ok(Evicted::AsLastResort);
    }
    let permit = calls.eviction_turn().await;
    if permit.is_none() || !calls.leads() {
        return Err(Refusal::lost_lead());
    }
    check_all(calls, &candidate).await?;
    let row = evict_candidate(calls, offer, violation, &candidate, turn).await?;
    Ok(Evicted::Now(row))
}

async fn candidate<C: Calls>(
    calls: &C,
    snapshot: &Snapshot,
    offer: &Offer,
    name: &str,
    turn: &Turn,
) -> Result<Candidate, Refusal> {
    let (settings, namespace) = (calls.settings(), &*offer.namespace);
    let (known, node) = running_pod(snapshot, &settings.exempt_namespaces, namespace, name)?;
    let object = calls.get_pod(namespace, name).await.map_err(|error| {
        let text = format!("pod {namespace}/{name}: {error}");
        Refusal::new("Failed", text)
    })?;
    let terms = Terms {
        groups: offer.evict_groups,
        protecting: &settings.protecting_annotations,
        row: turn.row,
        cool_down: settings.eviction_cool_down,
        now: calls.now().unix,
    };
    let group = match check_pod(&object, known, &terms)? {
        Some(group) => Some(whole_group(calls, &object, &group, &terms).await?),
        None => None,
    };
    let pod = as_unbound(object.clone());
    let plan = calls.plan(snapshot, offer, &pod).await;
    Ok(Candidate {
        target: better_node(&plan, &node)?,
        is_last_resort: group.is_some() || is_only_replica(snapshot, known),
        pod,
        object,
        node,
        group,
    })
}

/// Returns the group of a pod, or a refusal if one of its pods must not be evicted.
async fn whole_group<C: Calls>(
    calls: &C,
    pod: &Pod,
    group: &Group,
    terms: &Terms<'_>,
) -> Result<WholeGroup, Refusal> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut others = calls.group_pods(namespace, group).await?;
    others.retain(|other| other.metadata.uid != pod.metadata.uid);
    if others.len() >= MAX_GROUP_PODS {
        let text = format!(
            "{} has {} pods, more than the {MAX_GROUP_PODS} that are evicted together",
            group.name,
            others.len() + 1
        );
        return Err(Refusal::new("GroupMember", text));
    }
    for other in &others {
        check_member(other, terms)?;
    }
    Ok(WholeGroup {
        name: group.name.clone(),
        others,
    })
}

/// Refuses unless the workload is ready and the disruption budgets allow the eviction of each pod.
async fn check_all<C: Calls>(calls: &C, candidate: &Candidate) -> Result<(), Refusal> {
    match &candidate.group {
        None => calls.check_workload(&candidate.object).await?,
        Some(group) => {
            check_group(&group.name, &group.others)?;
            let pods: Vec<Pod> = candidate.pods().cloned().collect();
            let budgets = calls.budgets(&candidate.pod.namespace).await?;
            check_budgets(&group.name, &pods, &budgets)?;
        }
    }
    // A dry run first: an eviction that a budget refuses must not be recorded in the offer's
    // status.
    for pod in candidate.pods() {
        match calls.evict(pod, true).await {
            EvictAnswer::Done => {}
            EvictAnswer::Refused(refusal) => return Err(refusal),
            EvictAnswer::Lost(why) => return Err(Refusal::new("Failed", why)),
        }
    }
    Ok(())
}

async fn evict_candidate<C: Calls>(
    calls: &C,
    offer: &Offer,
    violation: &Violation,
    candidate: &Candidate,
    turn: &Turn,
) -> Result<EvictionRow, Refusal> {
    let (pod, better) = (&candidate.pod, &candidate.target.node);
    let group = candidate.group.as_ref();
    let group = group.map(|group| format!("{} pods of {}", group.others.len() + 1, group.name));
    let with = group.as_ref().map(|group| format!(", with all {group}"));
    let plan = format!(
        "pod {}/{} on {}{}: {}; {better} would keep to every rule",
        pod.namespace,
        pod.name,
        candidate.node,
        with.unwrap_or_default(),
        candidate.target.why
    );
    let period = calls.settings().eviction_cool_down;
    let at = to_api_time(calls.now().unix);
    let row = EvictionRow::with(turn.row, from_api_time(&at), turn.pods, period);
    if calls.settings().dry_run {
        let text = format!("would evict {plan}");
        report(calls, violation, "WouldEvict", false, text);
        return Ok(row);
    }
    if !calls.leads() {
        return Err(Refusal::lost_lead());
    }
    let note = LastEviction {
        pod: pod.name.to_string(),
        uid: pod.uid.to_string(),
        node: candidate.node.to_string(),
        binding: violation.binding.name.to_string(),
        time: at,
        group,
        since: Some(to_api_time(row.since)),
        next_time: Some(to_api_time(row.next)),
    };
    calls
        .note_eviction(offer, &note)
        .await
        .map_err(|e| Refusal::new("Failed", format!("the eviction could not be recorded: {e}")))?;
    if !calls.leads() {
        return Err(Refusal::lost_lead());
    }
    let mut result = EvictionResult::default();
    for (i, pod) in candidate.pods().enumerate() {
        if i > 0 && !calls.leads() {
            result.left.push("this replica leads no more".to_owned());
            break;
        }
        match calls.evict(pod, false).await {
            EvictAnswer::Done => result.evicted.push(pod),
            EvictAnswer::Refused(refusal) if i == 0 => return Err(refusal),
            // The group's controller has deleted the pod already.
            EvictAnswer::Refused(refusal) if refusal.code == "Stale" => {}
            EvictAnswer::Refused(refusal) => result.left.push(refusal.text),
            EvictAnswer::Lost(why) => result.lost.push(why),
        }
    }
    let because = format!(
        "binding {} of offer {} was violated ({}); {better} would keep to every rule",
        violation.binding.name, offer.name, violation.reason
    );
    report_result(calls, offer, violation, &result, (&plan, &because));
    // After a lost answer the next eviction waits as if this one had been carried out.
    Ok(row)
}

#[derive(Default)]
struct EvictionResult<'a> {
    evicted: Vec<&'a Pod>,
    /// The reasons why pods of the group were not evicted.
    left: Vec<String>,
    /// The errors of evictions that may have been carried out.
    lost: Vec<String>,
}

fn report_result<C: Calls>(
    calls: &C,
    offer: &Offer,
    violation: &Violation,
    result: &EvictionResult<'_>,
    (plan, because): (&str, &str),
) {
    let (code, text) = if !result.lost.is_empty() {
        let lost = result.lost.join("; ");
        (
            "Unknown",
            format!("the eviction's answer is lost ({lost}): {plan}"),
        )
    } else if !result.left.is_empty() {
        let left = result.left.join("; ");
        (
            "PartlyEvicted",
            format!("evicted not all ({left}) of {plan}"),
        )
    } else {
        let text = format!("evicted {plan}");
        tracing::info!(binding = %violation.binding.key(), "{text}");
        ("Evicted", text)
    };
    report(calls, violation, code, code != "Evicted", text.clone());
    if !result.evicted.is_empty() {
        calls.report_evicted_pods(offer, &result.evicted, because, text);
    }
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
