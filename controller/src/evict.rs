//! Evicting a pod of a violated binding, only where that helps and only safely:
//! a plan made now names another node, nothing else of the workload is down, and
//! the disruption budgets allow it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api,
    api::{DeleteParams, EvictParams, PostParams, Preconditions},
};
use parking_lot::Mutex;
use tautline_api::{constraint::LastEviction, convert};
use tautline_core::{
    Snapshot,
    model::{self, Offer},
    planning::{Outcome, Verdict},
    standing::Moment,
};
use tautline_discovery::Round;
use tautline_runtime::{
    events::{Note, of_our_kind, of_pod},
    lease::Term,
};
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    app::Shared,
    decisions::Decision,
    status::{moment_of, now, time_of},
    violations::Case,
    write,
};

/// The most that one call to the API server may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// A pod that was evicted is waited for so long; then its workload has been made
/// smaller, for all we know.
const REPLACED_WITHIN: Duration = Duration::from_secs(300);
/// The same refusal of the same binding is not told again for so long.
const QUIET: Duration = Duration::from_secs(300);

/// Why nothing is evicted for a binding now.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {text}")]
pub(crate) struct Refusal {
    pub code: &'static str,
    pub text: String,
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
            "ReplicaDown" | "Stale" => Duration::from_secs(1),
            "DisruptionBudget" => Duration::from_secs(5),
            _ => Duration::from_secs(10),
        }
    }
}

/// A pod that could be evicted, and where it would go.
struct Candidate {
    pod: model::Pod,
    node: Arc<str>,
    better: String,
    /// Its node breaks a rule; or how much better the other is.
    gain: (bool, u64),
    why: String,
}

pub(crate) struct Evictor {
    shared: Arc<Shared>,
    /// One eviction at a time, whatever the offer.
    turn: Semaphore,
    /// Workloads that lost a pod, how many they had, and when.
    down: Mutex<HashMap<u64, (usize, Instant)>>,
}

impl Evictor {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            turn: Semaphore::new(1),
            down: Mutex::default(),
        }
    }

    /// Evicts one pod of the binding, or says why none. Gives the time of it.
    pub(crate) async fn evict(
        &self,
        term: &Term,
        snapshot: &Snapshot,
        offer: &Offer,
        case: &Case,
    ) -> Result<Moment, Refusal> {
        let done = match self.turn.acquire().await {
            Ok(_turn) => self.evict_now(term, snapshot, offer, case).await,
            Err(_) => Err(Refusal::new("Stale", "stopping")),
        };
        if let Err(refusal) = &done {
            self.tell(case, refusal.code, true, &refusal.text);
        }
        done
    }

    async fn evict_now(
        &self,
        term: &Term,
        snapshot: &Snapshot,
        offer: &Offer,
        case: &Case,
    ) -> Result<Moment, Refusal> {
        let candidate = self.choose(snapshot, offer, case).await?;
        let pod = &candidate.pod;
        // The latest there is: another offer may have evicted while this planned.
        let latest = self.shared.feed.snapshot();
        let replicas = self.all_up(&latest, pod)?;
        let name = format!("{}/{}", pod.namespace, pod.name);
        let plan = format!(
            "pod {name} on {}: {}; {} would keep to every rule",
            candidate.node, candidate.why, candidate.better
        );
        let pods: Api<Pod> = Api::namespaced(self.shared.client.clone(), &pod.namespace);
        // Asked without effect first: a budget's refusal is no eviction.
        self.call(&pods, pod, true).await?;
        if self.shared.config.dry_run {
            self.tell(case, "WouldEvict", false, &format!("would evict {plan}"));
            return Ok(now());
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
        if !term.holds() {
            return Err(Refusal::new("Stale", "this replica leads no more"));
        }
        self.call(&pods, pod, false).await?;
        self.down
            .lock()
            .insert(pod.owner, (replicas, Instant::now()));
        self.evicted(offer, case, &candidate, &plan, &at);
        Ok(moment_of(&at))
    }

    /// The pod of the binding with most to gain from another node.
    async fn choose(
        &self,
        snapshot: &Snapshot,
        offer: &Offer,
        case: &Case,
    ) -> Result<Candidate, Refusal> {
        let mut best: Option<Candidate> = None;
        let mut refusals = Vec::new();
        // Targets come by name, so ties fall to the first.
        for (target, reference) in &case.binding.targets {
            if reference.kind != "Pod" || *reference.namespace != *offer.namespace {
                continue;
            }
            match self
                .candidate(snapshot, &reference.namespace, &reference.name)
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
        let unbound = as_unbound(pod);
        let round = self
            .shared
            .discovery
            .plan_where_it_fits(snapshot, &unbound)
            .await;
        better(&round, &node).map(|(better, gain, why)| Candidate {
            pod: unbound,
            node: Arc::clone(&node),
            better,
            gain,
            why,
        })
    }

    /// Nothing else of the pod's workload may be down. Gives how many it has.
    fn all_up(&self, snapshot: &Snapshot, pod: &model::Pod) -> Result<usize, Refusal> {
        let of_it = |p: &&Arc<model::Pod>| {
            p.owner == pod.owner && *p.namespace == *pod.namespace && !p.finished
        };
        let (mut up, mut down) = (0, None);
        for other in snapshot.pods().filter(of_it) {
            if other.ready && other.node.is_some() && !other.terminating {
                up += 1;
            } else if other.uid != pod.uid {
                down = Some(Arc::clone(&other.name));
            }
        }
        if let Some(down) = down {
            let text = format!(
                "pod {}/{down} of the same workload is not ready",
                pod.namespace
            );
            return Err(Refusal::new("ReplicaDown", text));
        }
        let mut lost = self.down.lock();
        lost.retain(|_, (_, at)| at.elapsed() < REPLACED_WITHIN);
        if let Some((before, _)) = lost.get(&pod.owner)
            && up < *before
        {
            let text = format!("{up} of {before} pods of the workload are up after an eviction");
            return Err(Refusal::new("ReplicaDown", text));
        }
        Ok(up)
    }

    /// The Eviction API; it asks the disruption budgets.
    async fn call(&self, pods: &Api<Pod>, pod: &model::Pod, dry_run: bool) -> Result<(), Refusal> {
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
        match tokio::time::timeout(DEADLINE, pods.evict(&pod.name, &params)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(kube::Error::Api(status))) => Err(match status.code {
                429 => Refusal::new("DisruptionBudget", format!("{id}: {}", status.message)),
                404 | 409 => Refusal::new("Stale", format!("{id} is gone, or another")),
                _ => Refusal::new("Failed", format!("{id}: {}", status.message)),
            }),
            Ok(Err(error)) => Err(Refusal::new("Failed", format!("{id}: {error}"))),
            Err(_) => Err(Refusal::new("Failed", format!("{id}: no answer in time"))),
        }
    }

    fn evicted(&self, offer: &Offer, case: &Case, candidate: &Candidate, plan: &str, at: &Time) {
        tracing::info!(binding = %case.binding.key(), at = %at.0, "evicted {plan}");
        self.tell(case, "Evicted", false, &format!("evicted {plan}"));
        let (ns, pod) = (&offer.namespace, &candidate.pod);
        let text = format!(
            "binding {} of offer {} was violated ({}); {} would keep to every rule",
            case.binding.name, offer.name, case.reason, candidate.better
        );
        for (regarding, text) in [
            (of_pod(ns, &pod.name, &pod.uid), text),
            (
                of_our_kind("ConstraintPolicyOffer", ns, &offer.name, &offer.uid),
                format!("evicted {plan}"),
            ),
        ] {
            self.shared.events.say(Note {
                regarding,
                warning: false,
                reason: "Evicted".to_owned(),
                action: "Evict",
                text,
            });
        }
    }

    fn tell(&self, case: &Case, code: &'static str, warning: bool, text: &str) {
        self.shared.metrics.eviction(code);
        self.shared
            .decisions
            .push(Decision::of(case, "Evict", code, text));
        let id = format!("{}/{code}", case.binding.key());
        let quiet = if warning { QUIET } else { Duration::ZERO };
        self.shared.events.say_once(id, quiet, || {
            Some(Note {
                regarding: case.regarding(),
                warning,
                reason: code.to_owned(),
                action: "Evict",
                text: text.to_owned(),
            })
        });
    }
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
fn better(round: &Round, node: &str) -> Result<(String, (bool, u64), String), Refusal> {
    let silent = round.rules.iter().find_map(|r| match r.outcome {
        Outcome::Unavailable { code, .. } => Some((r, code)),
        Outcome::Costs(_) => None,
    });
    if let Some((rule, code)) = silent {
        let why = rule.error.as_deref().unwrap_or(code);
        let text = format!(
            "rule {} could not be planned: {code}: {why}",
            rule.rule.name
        );
        return Err(Refusal::new("PlanIncomplete", text));
    }
    let badness = |at: usize| match round.plan.verdicts[at] {
        Verdict::Usable { badness, .. } => Some(badness),
        Verdict::Unusable { .. } => None,
    };
    let here = round.nodes.position(node);
    let best = round
        .plan
        .usable()
        .filter(|at| Some(*at) != here)
        .filter_map(|at| Some((badness(at)?, round.nodes.name(at))))
        .min();
    let now = here.and_then(badness);
    match (best, now) {
        (Some((there, name)), None) => {
            let why = match here.map(|at| &round.plan.verdicts[at]) {
                Some(Verdict::Unusable { reason, .. }) => reason.clone(),
                _ => "its node would not take it any more".to_owned(),
            };
            Ok((name.to_owned(), (true, u64::MAX - there), why))
        }
        (Some((there, name)), Some(now)) if there < now => {
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
                if let Verdict::Unusable { reason, .. } = verdict {
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
