//! Runs the cases of a file, in order, on one cluster.

use std::{collections::HashSet, time::Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use tautline_api::manifest::Workload;
use tautline_core::{planning::code, trust::TrustedNamespaces};
use tautline_report::{Case, CaseResult};

use super::cluster::{Cluster, PreparedCase, PreparedFile, PreparedSubject};
use crate::{
    local::{LocalScheduler, Placement},
    manifests::{pod_namespace, pods},
};

/// A case, and the place of its pod.
#[derive(Serialize)]
pub(super) struct CaseRun {
    #[serde(flatten)]
    pub case: Case,
    pub placement: Placement,
}

/// Runs the cases with `filter` in their name; earlier cases without it only take room.
pub(super) async fn run(
    file: &PreparedFile,
    filter: Option<&str>,
    trusted: &TrustedNamespaces,
) -> Result<Vec<CaseRun>> {
    let is_wanted = |case: &PreparedCase| filter.is_none_or(|part| case.spec.name.contains(part));
    let count = file
        .cases
        .iter()
        .rposition(is_wanted)
        .map_or(0, |last| last + 1);
    let mut runs = Vec::new();
    let mut state: Option<State<'_>> = None;
    for case in &file.cases[..count] {
        let started = Instant::now();
        if case.spec.fresh
            && let Some(before) = state.take()
        {
            before.local.stop().await;
        }
        let current = match &mut state {
            Some(current) => current,
            None => state.insert(State::start(&file.cluster, trusted).await?),
        };
        let attempt = current.place(case).await;
        let placement = attempt
            .with_context(|| format!("{}: case {:?}", file.path.display(), case.spec.name))?;
        if is_wanted(case) {
            runs.push(CaseRun {
                case: Case {
                    group: file.path.display().to_string(),
                    name: case.spec.name.clone(),
                    result: result(case, &placement),
                    took: started.elapsed(),
                },
                placement,
            });
        }
    }
    if let Some(state) = state {
        state.local.stop().await;
    }
    Ok(runs)
}

fn result(case: &PreparedCase, placement: &Placement) -> CaseResult {
    let wrong = case.spec.expect.compare(placement);
    if wrong.is_empty() {
        return CaseResult::Passed;
    }
    CaseResult::Failed {
        message: wrong.join("\n"),
        fix: fix(placement),
    }
}

/// Returns the fix for a rule without an answer, which is seldom intended.
fn fix(placement: &Placement) -> Option<String> {
    let mut rules = placement.round.iter().flat_map(|round| &round.rules);
    let rule = rules.find(|rule| rule.outcome != "OK")?;
    let (name, offer) = (&rule.rule, &rule.offer);
    Some(match rule.outcome.as_str() {
        code::NO_PROVIDER => format!(
            "no Service provides rule {name} of offer {offer}: add one to the manifests, or give \
             the rule costs in the test file"
        ),
        code::POLICY_MISSING => {
            format!("offer {offer} names the policy {name}: add it to the manifests")
        }
        outcome => {
            let error = rule.error.as_deref().unwrap_or(outcome);
            format!(
                "rule {name} of offer {offer} has no answer ({error}): give it costs in the test \
                 file if its provider does not run here"
            )
        }
    })
}

struct State<'a> {
    cluster: &'a Cluster,
    local: LocalScheduler,
    /// The namespaces and names of the placed pods.
    placed: HashSet<(String, String)>,
}

impl<'a> State<'a> {
    async fn start(cluster: &'a Cluster, trusted: &TrustedNamespaces) -> Result<Self> {
        Ok(Self {
            cluster,
            local: LocalScheduler::start(&cluster.items, trusted.clone()).await?,
            placed: HashSet::new(),
        })
    }

    async fn place(&mut self, case: &PreparedCase) -> Result<Placement> {
        let pod = match &case.subject {
            PreparedSubject::Pod(pod) => (**pod).clone(),
            PreparedSubject::Workload(workload) => self.next_pod(workload),
        };
        self.local.set_costs(&case.spec.costs);
        let placement = self.local.place(&pod).await?;
        let key = (placement.namespace.clone(), placement.pod.clone());
        self.placed.insert(key);
        Ok(placement)
    }

    /// Returns the first pod of a workload that no case has placed, else one more pod of its
    /// template.
    fn next_pod(&self, workload: &Workload) -> Pod {
        let is_placed = |pod: &Pod| {
            let name = pod.metadata.name.clone().unwrap_or_default();
            self.placed.contains(&(pod_namespace(pod).to_owned(), name))
        };
        let is_bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|s| s.node_name.is_some());
        let mut own = pods(&self.cluster.items).filter(|p| workload.owns(&p.metadata));
        if let Some(next) = own.find(|p| !is_placed(p) && !is_bound(p)) {
            return next.clone();
        }
        let is_taken = |pod: &Pod| {
            let mut known = pods(&self.cluster.items);
            is_placed(pod)
                || known.any(|p| {
                    p.metadata.name == pod.metadata.name && pod_namespace(p) == pod_namespace(pod)
                })
        };
        let mut further = (0..).map(|number| workload.pod(number));
        further.find(|pod| !is_taken(pod)).unwrap_or_default()
    }
}
