//! Decides on evictions without side effects: chooses the pod of a violated binding that gains most
//! from another node, or refuses the eviction with a reason.

mod better_node;
mod owner;
mod pace;
mod protection;
#[cfg(test)]
mod tests;
mod workload;

use std::{collections::BTreeSet, iter, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use tautline_api::convert;
use tautline_core::{
    Snapshot,
    compliance_state::UnixTime,
    model::{self, Offer},
};

use crate::{binding_spec::BindingSpec, binding_status::from_api_time, config::AnnotationMatch};

pub(crate) use better_node::{Move, NodePlan, better_node};
pub(crate) use owner::{Group, controller_of};
pub(crate) use pace::EvictionRow;
pub(crate) use workload::{check_budgets, check_group, check_ready, checked_name, is_finished};

/// The reason why no pod of a violated binding can be evicted at the moment.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{code}: {text}")]
pub(crate) struct Refusal {
    pub code: &'static str,
    pub text: String,
}

impl Refusal {
    pub(crate) fn new(code: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }

    pub(crate) fn retry_after(&self) -> Duration {
        match self.code {
            // These conditions usually end soon.
            "ReplicaDown" | "Stale" => Duration::from_secs(2),
            "DisruptionBudget" => Duration::from_secs(5),
            _ => Duration::from_secs(10),
        }
    }
}

/// The answer of the API server to an eviction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EvictAnswer {
    Done,
    Refused(Refusal),
    /// The request failed with this error, but the pod may have been evicted.
    Lost(String),
}

impl EvictAnswer {
    pub(crate) fn from_status(id: &str, status: u16, message: &str) -> Self {
        let refused = |code, text| Self::Refused(Refusal::new(code, text));
        match status {
            429 => refused("DisruptionBudget", format!("{id}: {message}")),
            404 | 409 => refused("Stale", format!("{id} is gone, or another")),
            400..500 => refused("Failed", format!("{id}: {message}")),
            _ => Self::Lost(message.to_owned()),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// The pod without its node, as its replacement will be before scheduling.
    pub pod: model::Pod,
    pub object: Pod,
    pub node: Arc<str>,
    pub target: Move,
    /// The group that is evicted together with the pod.
    pub group: Option<WholeGroup>,
    /// True if the pod is the only one of its owner or belongs to a group. Such a pod is evicted
    /// only if no other candidate exists and the offer's other violations had their turn.
    pub is_last_resort: bool,
}

/// A group of pods that are evicted together.
#[derive(Clone, Debug)]
pub(crate) struct WholeGroup {
    pub name: String,
    /// The group's pods except the candidate's.
    pub others: Vec<Pod>,
}

impl Candidate {
    /// Returns the pods to evict, the candidate's own pod first.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Pod> {
        let others = self.group.iter().flat_map(|group| &group.others);
        iter::once(&self.object).chain(others)
    }
}

/// Returns the pods of a binding that its offer may evict: target names and pod names.
pub(crate) fn pods_of<'a>(
    binding: &'a BindingSpec,
    offer: &'a Offer,
) -> impl Iterator<Item = (&'a Arc<str>, &'a str)> {
    binding
        .targets
        .iter()
        .filter(|(target, r)| {
            r.is_local_pod() && *r.namespace == *offer.namespace && offer.evict.contains(target)
        })
        .map(|(target, r)| (target, r.name.as_str()))
}

pub(crate) fn running_pod<'a>(
    snapshot: &'a Snapshot,
    exempt: &BTreeSet<String>,
    namespace: &str,
    name: &str,
) -> Result<(&'a Arc<model::Pod>, Arc<str>), Refusal> {
    if exempt.contains(namespace) {
        let text = format!("namespace {namespace} is exempt");
        return Err(Refusal::new("Exempt", text));
    }
    let id = format!("pod {namespace}/{name}");
    let Some(pod) = snapshot.pod(namespace, name) else {
        return Err(Refusal::new("Stale", format!("{id} is gone")));
    };
    match &pod.node {
        Some(node) if !pod.terminating && !pod.finished => Ok((pod, Arc::clone(node))),
        _ => Err(Refusal::new("ReplicaDown", format!("{id} does not run"))),
    }
}

/// The settings and the state against which an eviction is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    /// True if the offer allows the eviction of whole groups (`evictGroups`).
    pub groups: bool,
    /// The configured annotations that protect a pod, in addition to the known ones.
    pub protecting: &'a [AnnotationMatch],
    /// The last row of the offer's evictions.
    pub row: Option<EvictionRow>,
    pub cool_down: Duration,
    pub now: UnixTime,
}

/// Returns the group that must be evicted with the pod. Refuses a pod that was replaced, that an
/// eviction would not move, that is protected, whose group must not be evicted, or that an earlier
/// eviction for the offer created.
pub(crate) fn check_pod(
    pod: &Pod,
    known: &model::Pod,
    terms: &Terms<'_>,
) -> Result<Option<Group>, Refusal> {
    let id = format!("pod {}/{}", known.namespace, known.name);
    if pod.metadata.uid.as_deref() != Some(&*known.uid) {
        return Err(Refusal::new("Stale", format!("{id} is another by now")));
    }
    let group = check_member(pod, terms)?;
    if let Some(group) = group.as_ref().filter(|_| !terms.groups) {
        return Err(group.refusal(&id));
    }
    let created = pod.metadata.creation_timestamp.as_ref().map(from_api_time);
    let came_back =
        |(created, row): (UnixTime, EvictionRow)| row.created(created, terms.now, terms.cool_down);
    if created.zip(terms.row).is_some_and(came_back) {
        let text = format!(
            "{id} came after the last eviction, and is where it must not be again; does \
             kube-scheduler ask the extender about it?"
        );
        return Err(Refusal::new("CameBack", text));
    }
    Ok(group)
}

/// Refuses a pod that an eviction would not move, or that is protected. Returns the pod's group.
pub(crate) fn check_member(pod: &Pod, terms: &Terms<'_>) -> Result<Option<Group>, Refusal> {
    let [namespace, name] = [&pod.metadata.namespace, &pod.metadata.name]
        .map(|part| part.as_deref().unwrap_or_default());
    let id = format!("pod {namespace}/{name}");
    let group = owner::group_of(pod, &id)?;
    protection::check_protection(pod, &id, terms.protecting, terms.now)?;
    Ok(group)
}

/// Returns whether the pod is the only one of its owner that is neither finished nor terminating.
pub(crate) fn is_only_replica(snapshot: &Snapshot, pod: &model::Pod) -> bool {
    let is_sibling = |other: &&Arc<model::Pod>| {
        other.owner == pod.owner && other.namespace == pod.namespace && other.uid != pod.uid
    };
    let mut siblings = snapshot.pods().filter(is_sibling);
    !siblings.any(|other| !other.finished && !other.terminating)
}

pub(crate) fn as_unbound(mut pod: Pod) -> model::Pod {
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    convert::pod(&pod)
}

/// Returns the candidate with the largest gain; candidates of last resort come after all others,
/// and the first target by name wins a tie.
///
/// # Errors
/// Without a candidate, returns the refusals of all targets, with the code of the first.
pub(crate) fn choose(
    candidates: Vec<(Arc<str>, Result<Candidate, Refusal>)>,
) -> Result<Candidate, Refusal> {
    let mut best: Option<Candidate> = None;
    let (mut code, mut texts) = (None, Vec::new());
    for (target, candidate) in candidates {
        match candidate {
            Ok(candidate) => {
                let rank = |c: &Candidate| (!c.is_last_resort, c.target.gain);
                if best.as_ref().is_none_or(|b| rank(&candidate) > rank(b)) {
                    best = Some(candidate);
                }
            }
            Err(refusal) => {
                code = code.or(Some(refusal.code));
                texts.push(format!("target {target}: {}", refusal.text));
            }
        }
    }
    match (best, code) {
        (Some(best), _) => Ok(best),
        (None, Some(code)) => Err(Refusal::new(code, texts.join("; "))),
        (None, None) => Err(Refusal::new(
            "NoPodTarget",
            "the binding has no pod of a target that its offer evicts",
        )),
    }
}
