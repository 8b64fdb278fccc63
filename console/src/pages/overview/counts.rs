//! The numbers of bindings, waiting pods, GPUs and latency agents.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use anyhow::{Result, bail};
use serde::Serialize;
use tautline_api::{ConstraintPolicyBinding, constraint::Compliance};
use tautline_core::Snapshot;
use tautline_gpu_slice::report::{Amounts, CardSums, Total};

use crate::{
    admin::admin,
    draw::{Count, error_line},
    pages::decisions::causes,
    source::{AdminAnswer, Component, Source},
};

/// A part of the page whose source may not answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Part<T> {
    Known(T),
    Failed { error: String },
}

impl<T> Part<T> {
    pub fn new(read: Result<T>) -> Self {
        match read {
            Ok(part) => Self::Known(part),
            Err(error) => Self::Failed {
                error: error_line(&error),
            },
        }
    }
}

/// The number of bindings by state, the worst first.
#[derive(Debug, Serialize)]
pub(super) struct Bindings {
    pub total: usize,
    pub states: Vec<Count>,
}

impl Bindings {
    pub fn new(all: &[Arc<ConstraintPolicyBinding>]) -> Self {
        let mut counts = [0; Compliance::WORST_FIRST.len()];
        for binding in all {
            counts[binding.compliance().rank()] += 1;
        }
        Self {
            total: all.len(),
            states: Count::all(counts),
        }
    }
}

/// The number of pods without a node, by reason.
#[derive(Debug, Serialize)]
pub(super) struct Waiting {
    pub total: usize,
    /// The rules that left pods without a node, the one of most pods first. A pod may count for
    /// several rules.
    pub rules: Vec<RuleCount>,
    /// The number of pods with scheduling gates.
    pub gated: usize,
    /// The number of pods for which kube-scheduler found no node for another reason, or has not
    /// tried.
    pub other: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct RuleCount {
    pub rule: String,
    pub pods: usize,
}

impl Waiting {
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut total, mut gated, mut other) = (0, 0, 0);
        for pod in snapshot.pods().filter(|p| p.waits_for_node()) {
            total += 1;
            match causes(pod) {
                ([], true) => gated += 1,
                ([], false) => other += 1,
                (rules, _) => {
                    for rule in rules {
                        *counts.entry(rule).or_default() += 1;
                    }
                }
            }
        }
        let rules = counts.into_iter().map(|(rule, pods)| RuleCount {
            rule: rule.to_owned(),
            pods,
        });
        let mut rules: Vec<RuleCount> = rules.collect();
        rules.sort_by_key(|r| Reverse(r.pods));
        Self {
            total,
            rules,
            gated,
            other,
        }
    }
}

/// The sums over all cards, as `tautline gpu top` counts them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gpu {
    #[serde(flatten)]
    pub sums: CardSums,
    /// The number of GPUs of which only the number is known.
    pub counted_units: i64,
    /// The number of these GPUs that are in use.
    pub counted_used_units: i64,
}

impl Gpu {
    pub fn new(totals: &[Total]) -> Self {
        let mut gpu = Self {
            sums: CardSums::of_all(totals),
            counted_units: 0,
            counted_used_units: 0,
        };
        for total in totals {
            if let Amounts::Units {
                units, used_units, ..
            } = &total.amounts
            {
                gpu.counted_units = gpu.counted_units.saturating_add(*units);
                gpu.counted_used_units = gpu.counted_used_units.saturating_add(*used_units);
            }
        }
        gpu
    }
}

const METRIC: &str = "tautline_latency_agents";

/// The number of nodes, and of those whose agent measures the network.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Agents {
    /// The number of agents; `None` for manifests, which have no agents.
    pub agents: Option<u64>,
    pub nodes: usize,
}

/// Returns the number of agents that the replica with the fewest knows, as each agent reports to
/// all replicas.
pub(super) async fn agents(source: &dyn Source) -> Result<Option<u64>> {
    let answers = admin(source, Component::Latency, "/metrics").await?;
    fewest(&answers)
}

fn fewest(answers: &[AdminAnswer]) -> Result<Option<u64>> {
    let known: Vec<&AdminAnswer> = answers.iter().filter(|a| a.status != 404).collect();
    let counts: Option<Vec<u64>> = known.iter().map(|a| count(a)).collect();
    let Some(counts) = counts else {
        bail!("a replica of the latency provider has no metric {METRIC}");
    };
    Ok(counts.into_iter().min())
}

fn count(answer: &AdminAnswer) -> Option<u64> {
    let text = std::str::from_utf8(&answer.body).ok()?;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(METRIC)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> AdminAnswer {
        AdminAnswer {
            from: "pod l-1".into(),
            status,
            body: body.as_bytes().to_vec().into(),
        }
    }

    #[test]
    fn agents_are_those_of_the_replica_with_the_fewest() {
        let text = "# HELP tautline_latency_agents Connected agents.\n\
                    tautline_latency_agents_refused_total 9\ntautline_latency_agents 7\n";
        let other = "tautline_latency_agents 3\n";
        let both = [answer(200, text), answer(200, other)];
        assert_eq!(fewest(&both).unwrap(), Some(3));
        assert_eq!(fewest(&[answer(404, "no page")]).unwrap(), None);
        assert!(fewest(&[answer(200, "x 1")]).is_err());
    }
}
