use std::collections::BTreeMap;

use serde::Serialize;
use tautline_core::Snapshot;

use crate::pages::decisions::waits;

/// The number of pods without a node, by reason.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
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
#[serde(rename_all = "camelCase")]
pub(super) struct RuleCount {
    pub rule: String,
    pub pods: usize,
}

impl Waiting {
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut total, mut gated, mut other) = (0, 0, 0);
        for pod in snapshot.pods().filter(|p| waits(p)) {
            total += 1;
            let placement = pod.placement.as_deref();
            match placement {
                Some(p) if !p.rejected_by.is_empty() => {
                    for rule in &p.rejected_by {
                        *counts.entry(rule).or_default() += 1;
                    }
                }
                Some(p) if p.gated => gated += 1,
                _ => other += 1,
            }
        }
        let rules = counts.into_iter().map(|(rule, pods)| RuleCount {
            rule: rule.to_owned(),
            pods,
        });
        let mut rules: Vec<RuleCount> = rules.collect();
        rules.sort_by_key(|r| std::cmp::Reverse(r.pods));
        Self {
            total,
            rules,
            gated,
            other,
        }
    }
}
