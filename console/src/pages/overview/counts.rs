//! The numbers of bindings, waiting pods and GPUs.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use serde::Serialize;
use tautline_api::{ConstraintPolicyBinding, constraint::Compliance};
use tautline_core::Snapshot;
use tautline_gpu_slice::report::{Amounts, CardSums, Total};

use crate::pages::{bindings::Count, decisions::waits, gpu::useless_milli};

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
            match pod.placement.as_deref() {
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
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gpu {
    pub cards: usize,
    pub unhealthy_cards: usize,
    pub held_milli: i64,
    pub idle_milli: i64,
    /// The idle thousandths of cards that the next request is not expected to be able to use;
    /// absent while no requests are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub useless_milli: Option<i64>,
    /// The number of GPUs of which only the number is known.
    pub counted_units: i64,
    /// The number of these GPUs that are in use.
    pub counted_used_units: i64,
}

impl Gpu {
    pub fn new(totals: &[Total]) -> Self {
        let sums = CardSums::of_all(totals);
        let mut gpu = Self {
            cards: sums.cards,
            unhealthy_cards: sums.unhealthy_cards,
            held_milli: sums.held_milli,
            idle_milli: sums.free_milli,
            useless_milli: useless_milli(&sums),
            ..Self::default()
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
