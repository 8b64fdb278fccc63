//! Keeps the last decisions on violations, with their reasons, for the page `/decisions`.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::Serialize;
use tautline_core::text;

use crate::violations::Violation;

const MAX_DECISIONS: usize = 1000;
/// The limit for texts, which quote answers of providers and of the underlay controller.
const MAX_TEXT_CHARS: usize = 2048;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Decision {
    time: String,
    /// The `namespace/name` of the binding.
    binding: String,
    offer: String,
    /// `Mediate` or `Evict`.
    action: &'static str,
    /// The reason code of the outcome.
    outcome: &'static str,
    text: String,
    violation: String,
}

#[derive(Debug, Default)]
pub(crate) struct Decisions(Mutex<VecDeque<Decision>>);

impl Decisions {
    /// Adds a decision. It replaces the binding's last decision if action and outcome are the same
    /// and the outcome is not `Evicted`.
    pub(crate) fn push(
        &self,
        violation: &Violation,
        action: &'static str,
        outcome: &'static str,
        text: &str,
    ) {
        let decision = Decision {
            time: format!("{:.0}", k8s_openapi::jiff::Timestamp::now()),
            binding: violation.binding.key().to_string(),
            offer: violation.binding.offer_key().to_string(),
            action,
            outcome,
            text: text::sanitize(text, MAX_TEXT_CHARS).into_owned(),
            violation: violation.reason.clone(),
        };
        let mut all = self.0.lock();
        let last = all.iter().rposition(|d| d.binding == decision.binding);
        if let Some(last) = last
            && (all[last].action, all[last].outcome) == (action, outcome)
            && outcome != "Evicted"
        {
            all.remove(last);
        }
        if all.len() >= MAX_DECISIONS {
            all.pop_front();
        }
        all.push_back(decision);
    }

    /// Returns the decisions, the newest first.
    pub(crate) fn list(&self) -> Vec<Decision> {
        self.0.lock().iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::binding_spec::BindingSpec;

    fn push(decisions: &Decisions, binding: &str, code: &'static str, text: &str) {
        let binding = BindingSpec {
            namespace: "shop".into(),
            name: binding.into(),
            offer: "o".into(),
            ..BindingSpec::default()
        };
        let violation = Violation {
            binding: Arc::new(binding),
            ..Violation::default()
        };
        decisions.push(&violation, "Evict", code, text);
    }

    fn texts(decisions: &Decisions) -> Vec<String> {
        decisions.list().into_iter().map(|d| d.text).collect()
    }

    #[test]
    fn decisions_are_listed_newest_first() {
        let decisions = Decisions::default();
        push(&decisions, "a", "Stale", "1");
        push(&decisions, "b", "Stale", "2");
        assert_eq!(texts(&decisions), ["2", "1"]);
    }

    #[test]
    fn decisions_that_repeat_replace_the_last_of_their_binding() {
        let decisions = Decisions::default();
        push(&decisions, "a", "Stale", "1");
        push(&decisions, "b", "Stale", "2");
        push(&decisions, "a", "Stale", "3");
        assert_eq!(texts(&decisions), ["3", "2"]);
        push(&decisions, "a", "NoBetterNode", "4");
        assert_eq!(texts(&decisions), ["4", "3", "2"]);
    }

    #[test]
    fn decisions_keep_every_eviction() {
        let decisions = Decisions::default();
        push(&decisions, "a", "Evicted", "1");
        push(&decisions, "a", "Evicted", "2");
        assert_eq!(texts(&decisions), ["2", "1"]);
    }

    #[test]
    fn decisions_are_bounded() {
        let decisions = Decisions::default();
        for i in 0..MAX_DECISIONS + 5 {
            push(&decisions, "a", "Evicted", &i.to_string());
        }
        assert_eq!(decisions.list().len(), MAX_DECISIONS);
        assert_eq!(texts(&decisions)[0], (MAX_DECISIONS + 4).to_string());
    }

    #[test]
    fn decisions_clean_quoted_texts() {
        let decisions = Decisions::default();
        push(&decisions, "a", "Failed", "it said \u{1b}[2J\nforged");
        assert_eq!(texts(&decisions), ["it said \u{fffd}[2J forged"]);
    }
}
