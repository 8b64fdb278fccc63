//! Evicts a pod of a violated binding if the violation still holds, a new plan has a better node,
//! the workload is ready, and the disruption budgets allow it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tautline_api::{constraint::LastEviction, convert};
use tautline_core::{Compliance, Snapshot};

use super::{
    attempt::Turn,
    calls::{Calls, Level},
};
use crate::{
    binding_status::{from_api_time, to_api_time},
    eviction::{
        Candidate, EvictAnswer, EvictionRow, Group, Refusal, Terms, WholeGroup, as_unbound,
        better_node, check_budgets, check_group, check_member, check_pod, choose, is_only_replica,
        pods_of, running_pod,
    },
    violations::AttemptOutcome,
};

/// The maximum number of pods of a group that are evicted together, with one request per pod.
const MAX_GROUP_PODS: usize = 512;

impl<C: Calls> Turn<'_, C> {
    /// Evicts one pod of the binding, with its group if it has one, or reports the refusal.
    pub(super) async fn evict(&mut self) -> AttemptOutcome {
        match self.try_evict().await {
            Ok(Some(row)) => {
                self.row = Some(row);
                self.wait_until(row.next)
            }
            Ok(None) => {
                let text = "only a pod of last resort would be evicted: the only one of its owner, or \
                            a group; the offer's other violations come first";
                self.report("Evict", "LastResort", Level::Quiet, text.to_owned());
                AttemptOutcome::LastResort
            }
            Err(refusal) => {
                if refusal.code == "CameBack" {
                    self.slow_down().await;
                }
                let wait = refusal.retry_after();
                self.report("Evict", refusal.code, Level::Warning, refusal.text);
                self.not_before(wait)
            }
        }
    }

    /// Makes the next eviction wait a full cool-down, and records its time in the offer's status.
    async fn slow_down(&mut self) {
        let Some(row) = self.row else { return };
        let slowed = row.slowed(self.calls.config().eviction_cool_down);
        self.row = Some(slowed);
        if slowed.next == row.next || self.calls.config().dry_run || !self.calls.leads() {
            return;
        }
        let status = self.calls.offer_status(self.offer).await;
        let last = status.ok().and_then(|status| status.last_eviction);
        if let Some(last) = last.filter(|last| from_api_time(&last.time) == row.last) {
            let next_time = Some(to_api_time(slowed.next));
            let noted = LastEviction { next_time, ..last };
            if let Err(error) = self.calls.note_eviction(self.offer, &noted).await {
                let (namespace, name) = (&self.offer.namespace, &self.offer.name);
                tracing::warn!(%namespace, offer = %name, %error, "the time of the next eviction is not recorded");
            }
        }
    }

    /// Returns the row with the eviction, which was carried out or reported in a dry run; `None` if
    /// the only candidates are of last resort, so that the offer's other violations come first.
    async fn try_evict(&self) -> Result<Option<EvictionRow>, Refusal> {
        let (calls, binding) = (self.calls, &self.violation.binding);
        match calls.reevaluate(binding).await {
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
        for (target, name) in pods_of(binding, self.offer) {
            let candidate = self.candidate(&snapshot, name).await;
            candidates.push((Arc::clone(target), candidate));
        }
        let candidate = choose(candidates)?;
        if candidate.is_last_resort && !self.violation.last_resort {
            return Ok(None);
        }
        let _permit = calls.eviction_turn().await;
        self.check_lead()?;
        self.check_all(&candidate).await?;
        self.evict_candidate(&candidate).await.map(Some)
    }

    fn check_lead(&self) -> Result<(), Refusal> {
        if self.calls.leads() {
            return Ok(());
        }
        Err(Refusal::new("Stale", "this replica leads no more"))
    }

    async fn candidate(&self, snapshot: &Snapshot, name: &str) -> Result<Candidate, Refusal> {
        let (calls, config) = (self.calls, self.calls.config());
        let namespace = &*self.offer.namespace;
        let (known, node) = running_pod(snapshot, &config.exempt_namespaces, namespace, name)?;
        let object = calls.get_pod(namespace, name).await?;
        let terms = Terms {
            groups: self.offer.evict_groups,
            protecting: &config.protecting_annotations,
            row: self.row,
            cool_down: config.eviction_cool_down,
            now: calls.now().unix,
        };
        let group = match check_pod(&object, known, &terms)? {
            Some(group) => Some(self.whole_group(&object, &group, &terms).await?),
            None => None,
        };
        let pod = as_unbound(object.clone());
        let volumes = convert::pod_volumes(&object);
        let plan = calls.plan(snapshot, self.offer, &pod, volumes).await;
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
    async fn whole_group(
        &self,
        pod: &Pod,
        group: &Group,
        terms: &Terms<'_>,
    ) -> Result<WholeGroup, Refusal> {
        let namespace = &self.offer.namespace;
        let mut others = self.calls.group_pods(namespace, group).await?;
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

    /// Refuses unless the workload is ready and the disruption budgets allow the eviction of each
    /// pod.
    async fn check_all(&self, candidate: &Candidate) -> Result<(), Refusal> {
        match &candidate.group {
            None => self.calls.check_workload(&candidate.object).await?,
            Some(group) => {
                check_group(&group.name, &group.others)?;
                let pods: Vec<Pod> = candidate.pods().cloned().collect();
                let budgets = self.calls.budgets(&candidate.pod.namespace).await?;
                check_budgets(&group.name, &pods, &budgets)?;
            }
        }
        // A dry run first: an eviction that a budget refuses must not be recorded in the offer's
        // status.
        for pod in candidate.pods() {
            match self.calls.evict(pod, true).await {
                EvictAnswer::Done => {}
                EvictAnswer::Refused(refusal) => return Err(refusal),
                EvictAnswer::Lost(why) => return Err(Refusal::new("Failed", why)),
            }
        }
        Ok(())
    }

    async fn evict_candidate(&self, candidate: &Candidate) -> Result<EvictionRow, Refusal> {
        let (calls, offer, binding) = (self.calls, self.offer, &self.violation.binding);
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
        let period = calls.config().eviction_cool_down;
        let at = to_api_time(calls.now().unix);
        let row = EvictionRow::with(self.row, from_api_time(&at), self.pods, period);
        if calls.config().dry_run {
            let text = format!("would evict {plan}");
            self.report("Evict", "WouldEvict", Level::Normal, text);
            return Ok(row);
        }
        self.check_lead()?;
        let note = LastEviction {
            pod: pod.name.to_string(),
            uid: pod.uid.to_string(),
            node: candidate.node.to_string(),
            binding: binding.name.to_string(),
            time: at,
            group,
            since: Some(to_api_time(row.since)),
            next_time: Some(to_api_time(row.next)),
        };
        let noted = calls.note_eviction(offer, &note).await;
        noted.map_err(|e| {
            Refusal::new("Failed", format!("the eviction could not be recorded: {e}"))
        })?;
        self.check_lead()?;
        // The reasons why pods of the group were not evicted, and the errors of evictions that may
        // have been carried out.
        let (mut evicted, mut left, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for (i, pod) in candidate.pods().enumerate() {
            if i > 0 && !calls.leads() {
                left.push("this replica leads no more".to_owned());
                break;
            }
            match calls.evict(pod, false).await {
                EvictAnswer::Done => evicted.push(pod),
                EvictAnswer::Refused(refusal) if i == 0 => return Err(refusal),
                // The group's controller has deleted the pod already.
                EvictAnswer::Refused(refusal) if refusal.code == "Stale" => {}
                EvictAnswer::Refused(refusal) => left.push(refusal.text),
                EvictAnswer::Lost(why) => lost.push(why),
            }
        }
        let (code, level, text) = if !lost.is_empty() {
            let lost = lost.join("; ");
            let text = format!("the eviction's answer is lost ({lost}): {plan}");
            ("Unknown", Level::Warning, text)
        } else if !left.is_empty() {
            let text = format!("evicted not all ({}) of {plan}", left.join("; "));
            ("PartlyEvicted", Level::Warning, text)
        } else {
            let text = format!("evicted {plan}");
            tracing::info!(binding = %binding.key(), "{text}");
            ("Evicted", Level::Normal, text)
        };
        self.report("Evict", code, level, text.clone());
        if !evicted.is_empty() {
            let because = format!(
                "binding {} of offer {} was violated ({}); {better} would keep to every rule",
                binding.name, offer.name, self.violation.reason
            );
            calls.report_evicted_pods(offer, &evicted, &because, text);
        }
        // After a lost answer the next eviction waits as if this one had been carried out.
        Ok(row)
    }
}
