//! Which pod of a violated binding would gain from another node, by a plan made
//! now.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tautline_api::convert;
use tautline_core::{
    Snapshot,
    compliance_state::UnixTime,
    model::{self, Offer},
    planning::{NodeVerdict, RuleOutcome},
};
use tautline_provider_client::PlanningRound;

use super::{Evictor, Refusal};
use crate::{
    status::{moment_of, now},
    violations::Case,
};

/// The most that a look at a pod may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Cool-downs after an eviction for which a pod that came after it is let be.
const COOL_DOWNS: u32 = 10;

/// A pod that could be evicted, and where it would go.
pub(super) struct Candidate {
    /// As it would come again: bound nowhere.
    pub pod: model::Pod,
    /// As it is.
    pub object: Pod,
    pub node: Arc<str>,
    pub better: String,
    /// Whether its node breaks a rule; how much better the other is.
    gain: (bool, u64),
    pub why: String,
}

impl Evictor {
    /// The pod of the binding with most to gain from another node.
    pub(super) async fn choose(
        &self,
        snapshot: &Snapshot,
        offer: &Offer,
        case: &Case,
        last: Option<UnixTime>,
    ) -> Result<Candidate, Refusal> {
        let mut best: Option<Candidate> = None;
        let mut refusals = Vec::new();
        // Targets come by name, so ties fall to the first.
        for (target, reference) in &case.binding.targets {
            if reference.kind != "Pod" || *reference.namespace != *offer.namespace {
                continue;
            }
            match self
                .candidate(snapshot, &reference.namespace, &reference.name, last)
                .await
            {
                Ok(candidate) => {
                    if best.as_ref().is_none_or(|b| candidate.gain > b.gain) {
                        best = Some(candidate);
                    }
                }
                Err(refusal) => refusals.push((target, refusal)),
            }
        }
        if let Some(best) = best {
            return Ok(best);
        }
        let Some((_, first)) = refusals.first() else {
            return Err(Refusal::new(
                "NoPodTarget",
                "the binding has no pod to evict",
            ));
        };
        let code = first.code;
        let texts: Vec<String> = refusals
            .iter()
            .map(|(target, r)| format!("target {target}: {}", r.text))
            .collect();
        Err(Refusal::new(code, texts.join("; ")))
    }

    async fn candidate(
        &self,
        snapshot: &Snapshot,
        namespace: &str,
        name: &str,
        last: Option<UnixTime>,
    ) -> Result<Candidate, Refusal> {
        let id = format!("pod {namespace}/{name}");
        if self.shared.config.exempt_namespaces.contains(namespace) {
            return Err(Refusal::new(
                "Exempt",
                format!("namespace {namespace} is exempt"),
            ));
        }
        let Some(known) = snapshot.pod(namespace, name) else {
            return Err(Refusal::new("Stale", format!("{id} is gone")));
        };
        let Some(node) = known
            .node
            .clone()
            .filter(|_| !known.terminating && !known.finished)
        else {
            return Err(Refusal::new("ReplicaDown", format!("{id} does not run")));
        };
        let api: Api<Pod> = Api::namespaced(self.shared.client.clone(), namespace);
        let pod = match tokio::time::timeout(DEADLINE, api.get(name)).await {
            Ok(Ok(pod)) => pod,
            Ok(Err(error)) => return Err(Refusal::new("Failed", format!("{id}: {error}"))),
            Err(_) => return Err(Refusal::new("Failed", format!("{id}: no answer in time"))),
        };
        if pod.metadata.uid.as_deref() != Some(&*known.uid) {
            return Err(Refusal::new("Stale", format!("{id} is another by now")));
        }
        evictable(&pod).map_err(|(code, why)| Refusal::new(code, format!("{id} {why}")))?;
        let created = pod.metadata.creation_timestamp.as_ref().map(moment_of);
        let cool_down = self.shared.config.eviction_cool_down;
        if came_back(created, last, cool_down, now()) {
            let text = format!(
                "{id} came after the last eviction, and is where it must not be again; does \
                 kube-scheduler ask the extender about it?"
            );
            return Err(Refusal::new("CameBack", text));
        }
        let unbound = as_unbound(pod.clone());
        let round = self
            .shared
            .discovery
            .plan_on_fitting_nodes(snapshot, &unbound)
            .await;
        better(&round, &node).map(|(better, gain, why)| Candidate {
            pod: unbound,
            object: pod,
            node: Arc::clone(&node),
            better,
            gain,
            why,
        })
    }
}

/// Whether a pod is what an eviction just before has brought: that did not help, so
/// the next must not follow at once, or it would go on for ever.
fn came_back(
    created: Option<UnixTime>,
    last: Option<UnixTime>,
    cool_down: Duration,
    now: UnixTime,
) -> bool {
    let (Some(created), Some(last)) = (created, last) else {
        return false;
    };
    created >= last && now < last + COOL_DOWNS * cool_down
}

/// Pods whose eviction would not move them.
fn evictable(pod: &Pod) -> Result<(), (&'static str, &'static str)> {
    let meta = &pod.metadata;
    let annotations = meta.annotations.as_ref();
    if annotations.is_some_and(|a| a.contains_key("kubernetes.io/config.mirror")) {
        return Err(("MirrorPod", "is a mirror pod"));
    }
    let mut owners = meta.owner_references.iter().flatten();
    match owners.find(|o| o.controller == Some(true)) {
        None => Err(("Unmanaged", "has no controller that would make it anew")),
        Some(owner) if owner.kind == "DaemonSet" => Err(("DaemonSet", "belongs to a DaemonSet")),
        Some(owner) if owner.kind == "Node" => Err(("MirrorPod", "is a mirror pod")),
        Some(_) => Ok(()),
    }
}

/// The pod as it would come again: with what restricts its placement, bound
/// nowhere.
fn as_unbound(mut pod: Pod) -> model::Pod {
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    convert::pod(&pod)
}

/// The best other node of a plan, how much is gained there, and what is wrong
/// where the pod is.
fn better(round: &PlanningRound, node: &str) -> Result<(String, (bool, u64), String), Refusal> {
    let silent = round.rules.iter().find_map(|r| match r.outcome {
        RuleOutcome::Unavailable { code, .. } => Some((r, code)),
        RuleOutcome::Costs(_) => None,
    });
    if let Some((rule, code)) = silent {
        let why = rule.error.as_deref().unwrap_or(code);
        let text = format!(
            "rule {} could not be planned: {code}: {why}",
            rule.rule.name
        );
        return Err(Refusal::new("PlanIncomplete", text));
    }
    let rank = |at: usize| {
        let verdict = &round.plan.verdicts[at];
        verdict.is_usable().then(|| verdict.rank())
    };
    let here = round.nodes.position(node);
    let best = round
        .plan
        .usable()
        .filter(|at| Some(*at) != here)
        .filter_map(|at| Some((rank(at)?, round.nodes.name(at))))
        .min();
    let now = here.and_then(rank).map(|(badness, _)| badness);
    match (best, now) {
        (Some(((there, _), name)), None) => {
            let why = match here.map(|at| &round.plan.verdicts[at]) {
                Some(NodeVerdict::Unusable { reason, .. }) => reason.to_string(),
                _ => "its node would not take it any more".to_owned(),
            };
            Ok((name.to_owned(), (true, u64::MAX - there), why))
        }
        // No pod is moved to break a tie.
        (Some(((there, _), name)), Some(now)) if there < now => {
            let why = "its node costs more".to_owned();
            Ok((name.to_owned(), (false, now - there), why))
        }
        (Some(_), Some(_)) => Err(Refusal::new(
            "NoBetterNode",
            format!("the plan would leave the pod on {node}"),
        )),
        (None, _) => {
            let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
            for verdict in &round.plan.verdicts {
                if let NodeVerdict::Unusable { reason, .. } = verdict {
                    *reasons.entry(reason).or_default() += 1;
                }
            }
            let reasons: Vec<String> = reasons.iter().map(|(r, n)| format!("{n} {r}")).collect();
            let text = format!(
                "no other of {} nodes that would take the pod keeps to the rules ({})",
                round.nodes.len(),
                reasons.join(", ")
            );
            Err(Refusal::new("NoBetterNode", text))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tautline_core::{constraints::PodIdentity, planning::Plan};

    use super::*;

    fn round(verdicts: [NodeVerdict; 3]) -> PlanningRound {
        PlanningRound {
            subject: PodIdentity::default(),
            nodes: Arc::new(["a", "b", "c"].into_iter().collect()),
            rules: Vec::new(),
            plan: Plan {
                verdicts: verdicts.to_vec(),
            },
            at: SystemTime::UNIX_EPOCH,
            took: Duration::ZERO,
        }
    }

    #[test]
    fn a_pod_is_moved_for_a_lower_mean_and_not_to_break_a_tie() {
        let usable = |badness, tie_break| NodeVerdict::Usable {
            normalized_cost: badness,
            tie_break,
            score: 9,
        };
        let over = NodeVerdict::Unusable {
            reason: "latency/OverLimit".into(),
            freeable: false,
        };
        let tied = round([usable(5, 9), usable(5, 2), usable(5, 1)]);
        let refusal = better(&tied, "a").unwrap_err();
        assert_eq!(refusal.code, "NoBetterNode");
        let lower = round([usable(5, 1), usable(4, 9), usable(4, 8)]);
        let (node, gain, _) = better(&lower, "a").unwrap();
        assert_eq!((node.as_str(), gain), ("c", (false, 1)));
        let broken = round([over, usable(5, 2), usable(5, 1)]);
        assert_eq!(
            better(&broken, "a").unwrap().0,
            "c",
            "as the extender would"
        );
    }

    #[test]
    fn what_an_eviction_brought_is_let_be_for_ten_cool_downs() {
        let at = |created, last: Option<u64>, now| {
            let secs = Duration::from_secs;
            came_back(Some(secs(created)), last.map(secs), secs(120), secs(now))
        };
        assert!(at(1001, Some(1000), 1130));
        assert!(!at(1001, Some(1000), 2200), "ten cool-downs later");
        assert!(!at(900, Some(1000), 1130), "it was there before");
        assert!(!at(1001, None, 1130), "nothing was evicted");
    }
}
