//! Pure decisions on evictions: the pod of a binding that gains most from another place.

mod refusal;
#[cfg(test)]
mod tests;
mod workload;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use tautline_api::convert;
use tautline_core::{
    Snapshot,
    compliance_state::UnixTime,
    model::{self, Offer},
    nodes::NodeSet,
    planning::{NodeVerdict, Plan},
};

use crate::{binding_spec::BindingSpec, binding_status::from_api_time};

pub(crate) use refusal::{EvictAnswer, Refusal};
pub(crate) use workload::{OwnerRef, check_ready, checked_name, controller_of, desired_replicas};

/// A pod that came after an eviction is not evicted for so many cool-downs.
const COME_BACK_COOL_DOWNS: u32 = 10;

#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Unbound, as its replacement will be.
    pub pod: model::Pod,
    pub object: Pod,
    pub node: Arc<str>,
    pub target: Move,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Move {
    pub node: String,
    /// Whether the present node breaks a rule, and how much better the other one is.
    pub gain: (bool, u64),
    /// The problem of the present node.
    pub why: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NodePlan {
    /// The violated offer has a rule of an allocator: the replacement gets another allocation, such as
    /// another card, even on the same node.
    pub allocates: bool,
    pub nodes: Arc<NodeSet>,
    pub plan: Plan,
    /// The first rule without an answer.
    pub unanswered: Option<String>,
}

/// The pods of a binding that its offer may evict, by target name.
pub(crate) fn pods_of<'a>(
    binding: &'a BindingSpec,
    offer: &'a Offer,
) -> impl Iterator<Item = (&'a Arc<str>, &'a str)> {
    binding
        .targets
        .iter()
        .filter(|(_, r)| r.kind == "Pod" && *r.namespace == *offer.namespace)
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

/// Refuses a pod that no eviction moves, or that the last eviction of the offer created.
pub(crate) fn check_pod(
    pod: &Pod,
    known: &model::Pod,
    last_eviction: Option<UnixTime>,
    cool_down: Duration,
    now: UnixTime,
) -> Result<(), Refusal> {
    let id = format!("pod {}/{}", known.namespace, known.name);
    if pod.metadata.uid.as_deref() != Some(&*known.uid) {
        return Err(Refusal::new("Stale", format!("{id} is another by now")));
    }
    check_owner(pod).map_err(|(code, why)| Refusal::new(code, format!("{id} {why}")))?;
    let created = pod.metadata.creation_timestamp.as_ref().map(from_api_time);
    if came_back(created, last_eviction, cool_down, now) {
        let text = format!(
            "{id} came after the last eviction, and is where it must not be again; does \
             kube-scheduler ask the extender about it?"
        );
        return Err(Refusal::new("CameBack", text));
    }
    Ok(())
}

/// True if the last eviction created this pod: evicting it at once would go on for ever.
fn came_back(
    created: Option<UnixTime>,
    last_eviction: Option<UnixTime>,
    cool_down: Duration,
    now: UnixTime,
) -> bool {
    let (Some(created), Some(last)) = (created, last_eviction) else {
        return false;
    };
    created >= last && now < last + COME_BACK_COOL_DOWNS * cool_down
}

fn check_owner(pod: &Pod) -> Result<(), (&'static str, &'static str)> {
    let annotations = pod.metadata.annotations.as_ref();
    if annotations.is_some_and(|a| a.contains_key("kubernetes.io/config.mirror")) {
        return Err(("MirrorPod", "is a mirror pod"));
    }
    match controller_of(&pod.metadata) {
        None => Err(("Unmanaged", "has no controller that would create it again")),
        Some(owner) if owner.kind == "DaemonSet" => Err(("DaemonSet", "belongs to a DaemonSet")),
        Some(owner) if owner.kind == "Node" => Err(("MirrorPod", "is a mirror pod")),
        Some(_) => Ok(()),
    }
}

pub(crate) fn as_unbound(mut pod: Pod) -> model::Pod {
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    convert::pod(&pod)
}

pub(crate) fn better_node(plan: &NodePlan, node: &str) -> Result<Move, Refusal> {
    if let Some(rule) = &plan.unanswered {
        return Err(Refusal::new("PlanIncomplete", rule));
    }
    let (nodes, verdicts) = (&plan.nodes, &plan.plan.verdicts);
    let rank = |at: usize| verdicts[at].is_usable().then(|| verdicts[at].rank());
    let here = nodes.position(node);
    let best = plan
        .plan
        .usable()
        .filter(|at| Some(*at) != here)
        .filter_map(|at| Some((rank(at)?, nodes.name(at))))
        .min();
    let now = here.and_then(rank).map(|(cost, _)| cost);
    match (best, now) {
        (Some(((there, _), name)), None) => {
            let why = match here.map(|at| &verdicts[at]) {
                Some(NodeVerdict::Unusable { reason, .. }) => reason.to_string(),
                _ => "its node would not take it any more".to_owned(),
            };
            Ok(Move {
                node: name.to_owned(),
                gain: (true, u64::MAX - there),
                why,
            })
        }
        // No pod is moved to break a tie.
        (Some(((there, _), name)), Some(now)) if there < now => Ok(Move {
            node: name.to_owned(),
            gain: (false, now - there),
            why: "its node costs more".to_owned(),
        }),
        (_, Some(now)) if plan.allocates => Ok(Move {
            node: node.to_owned(),
            gain: (true, u64::MAX - now),
            why: "its node would give it another allocation".to_owned(),
        }),
        (Some(_), Some(_)) => {
            let text = format!("the plan would leave the pod on {node}");
            Err(Refusal::new("NoBetterNode", text))
        }
        (None, _) => Err(Refusal::new("NoBetterNode", no_usable_node(plan))),
    }
}

fn no_usable_node(plan: &NodePlan) -> String {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for verdict in &plan.plan.verdicts {
        if let NodeVerdict::Unusable { reason, .. } = verdict {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    let reasons: Vec<String> = reasons.iter().map(|(r, n)| format!("{n} {r}")).collect();
    format!(
        "none of the {} other nodes that fit the pod is within the rules ({})",
        plan.nodes.len(),
        reasons.join(", ")
    )
}

/// The candidate with most to gain; ties go to the first target by name. Without one,
/// the refusals of all targets under the code of the first.
pub(crate) fn choose(
    candidates: Vec<(Arc<str>, Result<Candidate, Refusal>)>,
) -> Result<Candidate, Refusal> {
    let mut best: Option<Candidate> = None;
    let (mut code, mut texts) = (None, Vec::new());
    for (target, candidate) in candidates {
        match candidate {
            Ok(candidate) => {
                let gain = candidate.target.gain;
                if best.as_ref().is_none_or(|b| gain > b.target.gain) {
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
            "the binding has no pod to evict",
        )),
    }
}
