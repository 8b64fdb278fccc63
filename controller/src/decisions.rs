//! The explain record of what was done about violations, and why not.

use std::collections::VecDeque;

use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use serde::Serialize;
use tautline_core::text;
use tautline_runtime::events::reference_to_own;

use crate::violations::Case;

/// Decisions that are remembered.
const MOST: usize = 1000;
/// A decision quotes providers and the underlay.
const LONGEST_TEXT_CHARS: usize = 2048;

/// One decision.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Decision {
    time: String,
    /// `namespace/name`.
    binding: String,
    offer: String,
    /// `Mediate` or `Evict`.
    action: &'static str,
    /// What came of it, as a reason code.
    outcome: &'static str,
    text: String,
    /// What the binding's rules said.
    violation: String,
}

impl Decision {
    pub(crate) fn of(case: &Case, action: &'static str, outcome: &'static str, text: &str) -> Self {
        Self {
            time: format!("{:.0}", k8s_openapi::jiff::Timestamp::now()),
            binding: case.binding.key().to_string(),
            offer: case.binding.offer_key().to_string(),
            action,
            outcome,
            text: text::sanitize(text, LONGEST_TEXT_CHARS).into_owned(),
            violation: case.reason.clone(),
        }
    }
}

impl Case {
    pub(crate) fn regarding(&self) -> ObjectReference {
        let b = &self.binding;
        reference_to_own("ConstraintPolicyBinding", &b.namespace, &b.name, &b.uid)
    }
}

/// The last decisions.
#[derive(Debug, Default)]
pub(crate) struct Decisions(Mutex<VecDeque<Decision>>);

impl Decisions {
    /// Remembers a decision; one that only repeats the last of its binding takes
    /// that one's place.
    pub(crate) fn push(&self, decision: Decision) {
        let mut all = self.0.lock();
        let last = all.iter().rposition(|d| d.binding == decision.binding);
        if let Some(last) = last
            && (all[last].action, all[last].outcome) == (decision.action, decision.outcome)
            && decision.outcome != "Evicted"
        {
            all.remove(last);
        }
        if all.len() >= MOST {
            all.pop_front();
        }
        all.push_back(decision);
    }

    /// The newest first.
    pub(crate) fn list(&self) -> Vec<Decision> {
        self.0.lock().iter().rev().cloned().collect()
    }
}
