//! The last decisions on violations, with their reasons, for `/decisions`.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::Serialize;
use tautline_core::text;

use crate::violations::Violation;

const MAX_DECISIONS: usize = 1000;
/// Texts quote providers and the underlay controller.
const MAX_TEXT_CHARS: usize = 2048;

/// One decision.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Decision {
    time: String,
    /// `namespace/name`.
    binding: String,
    offer: String,
    /// `Mediate` or `Evict`.
    action: &'static str,
    /// The reason code.
    outcome: &'static str,
    text: String,
    /// The reason of the violation.
    violation: String,
}

impl Decision {
    pub(crate) fn new(
        violation: &Violation,
        action: &'static str,
        outcome: &'static str,
        text: &str,
    ) -> Self {
        Self {
            time: format!("{:.0}", k8s_openapi::jiff::Timestamp::now()),
            binding: violation.binding.key().to_string(),
            offer: violation.binding.offer_key().to_string(),
            action,
            outcome,
            text: text::clean(text, MAX_TEXT_CHARS).into_owned(),
            violation: violation.reason.clone(),
        }
    }
}

/// The last decisions.
#[derive(Debug, Default)]
pub(crate) struct Decisions(Mutex<VecDeque<Decision>>);

impl Decisions {
    /// Adds a decision. One that only repeats the last of its binding replaces that one.
    pub(crate) fn push(&self, decision: Decision) {
        let mut all = self.0.lock();
        let last = all.iter().rposition(|d| d.binding == decision.binding);
        if let Some(last) = last
            && (all[last].action, all[last].outcome) == (decision.action, decision.outcome)
            && decision.outcome != "Evicted"
        {
            all.remove(last);
        }
        if all.len() >= MAX_DECISIONS {
            all.pop_front();
        }
        all.push_back(decision);
    }

    /// The newest first.
    pub(crate) fn list(&self) -> Vec<Decision> {
        self.0.lock().iter().rev().cloned().collect()
    }
}
