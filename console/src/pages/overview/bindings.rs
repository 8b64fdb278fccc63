use std::sync::Arc;

use serde::Serialize;
use tautline_api::{ConstraintPolicyBinding, constraint::Compliance};

/// The number of bindings by state, the worst first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bindings {
    pub total: usize,
    pub states: Vec<State>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct State {
    pub compliance: Compliance,
    pub count: usize,
}

impl Bindings {
    pub fn new(all: &[Arc<ConstraintPolicyBinding>]) -> Self {
        let mut counts = [0; Compliance::WORST_FIRST.len()];
        for binding in all {
            counts[binding.compliance().rank()] += 1;
        }
        let states = Compliance::WORST_FIRST.into_iter().zip(counts);
        let state = |(compliance, count)| State { compliance, count };
        Self {
            total: all.len(),
            states: states.map(state).collect(),
        }
    }
}
