//! The outcome of an evaluation, which the response, audit log, metrics and `tautline check` use.

use std::sync::Arc;

use json_patch::Patch;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tautline_cel::EvaluationError;

use crate::matching::Mismatch;

/// The verdict on a request and the steps that led to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The effect on the request.
    pub verdict: Verdict,
    /// The invocations of both passes, in order.
    pub invocations: Vec<InvocationReport>,
    /// The errors in order, including ignored ones.
    pub faults: Vec<Fault>,
    /// The policies and bindings that do not match; only in full detail.
    #[serde(rename = "passedOver")]
    pub skipped: Vec<SkippedPolicy>,
}

/// The decision to admit or refuse a request, with the changed object or the reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The request is admitted without a change.
    #[default]
    Unchanged,
    /// The request is admitted with a changed object.
    Changed {
        /// The object after all mutations, with defaults.
        object: Arc<Value>,
        /// The patch from the original object (RFC 6902).
        patch: Patch,
    },
    /// The request is refused because of an error that no failurePolicy ignores.
    Refused(Denial),
}

/// The status of a refusal.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// The HTTP status, 403 or 404.
    pub code: u16,
    /// The status reason, such as `Invalid`.
    pub reason: &'static str,
    /// The first of the causes.
    pub message: String,
    /// The errors that refuse the request, in order.
    pub causes: Vec<String>,
}

/// One run of a policy, for a binding and a parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InvocationReport {
    /// The name of the policy.
    pub policy: Arc<str>,
    /// The name of the binding.
    pub binding: Arc<str>,
    /// The parameter as `name` or `namespace/name`.
    pub param: Option<String>,
    /// The number of the pass: 1, or 2 for the reinvocation after a change.
    pub pass: u8,
    /// The effect on the object, or the reason why there is none.
    pub end: InvocationEnd,
    /// The name of the condition that is false, if any.
    pub condition: Option<String>,
    /// The cost units of all conditions together.
    pub condition_cost_units: u64,
    /// The mutations that ran, in order, including those that failed.
    pub steps: Vec<MutationReport>,
}

/// The end of an invocation. [`InvocationEnd::code`] returns its label in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum InvocationEnd {
    /// A mutation changed the object.
    Changed,
    /// The mutations did not change the object.
    Unchanged,
    /// A condition was false.
    Skipped,
    /// A condition or mutation failed. Earlier changes remain.
    Failed,
}

impl InvocationEnd {
    /// Returns the label of the end in metrics, such as `changed`.
    pub fn code(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

/// The result of one mutation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MutationReport {
    /// The path of the expression, such as `spec.mutations[0].jsonPatch.expression`.
    pub field: String,
    /// The cost units of the expression and the variables it used.
    pub cost_units: u64,
    /// The variables that the expression used, with their values or errors; only in full detail.
    #[serde(serialize_with = "variables_by_name")]
    pub variables: Vec<(String, Result<Value, EvaluationError>)>,
    /// The change of the object, including defaults (RFC 6902); only in full detail.
    pub diff: Option<Patch>,
    /// True if the mutation, including defaults, changed the object.
    pub changed: bool,
    /// The reason why the mutation failed; `None` if it did not.
    pub error: Option<String>,
}

/// An error of a policy, displayed in the wording of the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// The name of the policy.
    pub policy: Arc<str>,
    /// The name of the binding; `None` for an error of the policy.
    pub binding: Option<Arc<str>>,
    /// The kind of the error, which shows the part that failed.
    pub kind: FaultKind,
    /// The error, without the names of policy and binding.
    pub message: String,
    /// True if failurePolicy Ignore ignores the error.
    pub ignored: bool,
}

/// The kind of an error. [`FaultKind::code`] returns its label in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FaultKind {
    /// The Namespace does not exist.
    Namespace,
    /// Parameters do not exist or cannot be read.
    Params,
    /// A condition could not be evaluated.
    Condition,
    /// A mutation's expression could not be evaluated, or has a value of a wrong type.
    Expression,
    /// A limit on cost, memory, size or time was reached.
    Budget,
    /// The configuration cannot be merged, or the patch does not apply.
    Patch,
    /// The result is not an object of its kind.
    Object,
}

impl FaultKind {
    /// Returns the label of the kind in metrics, such as `params`.
    pub fn code(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Params => "params",
            Self::Condition => "condition",
            Self::Expression => "expression",
            Self::Budget => "budget",
            Self::Patch => "patch",
            Self::Object => "object",
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.binding {
            Some(binding) => write!(
                f,
                "policy '{}' with binding '{binding}' denied request: {}",
                self.policy, self.message
            ),
            None => write!(
                f,
                "policy \"{}\" denied request: {}",
                self.policy, self.message
            ),
        }
    }
}

/// A policy or binding that does not match the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkippedPolicy {
    /// The name of the policy.
    pub policy: Arc<str>,
    /// The name of the binding that does not match; `None` if the policy does not.
    pub binding: Option<Arc<str>>,
    /// The check that fails.
    pub why: Mismatch,
}

impl Outcome {
    /// Returns the audit annotations that name the invocations that changed the object and the
    /// ignored errors. Their values are below 4 KiB.
    pub fn audit_annotations(&self) -> Vec<(&'static str, String)> {
        let changed = self
            .invocations
            .iter()
            .filter(|i| i.end == InvocationEnd::Changed);
        let changed = changed.map(|i| match &i.param {
            Some(param) => format!("{}/{}({param})", i.policy, i.binding),
            None => format!("{}/{}", i.policy, i.binding),
        });
        let ignored = self.faults.iter().filter(|f| f.ignored);
        let ignored = ignored.map(|f| format!("{}: {}", f.policy, f.message));
        let mut annotations = vec![
            ("changed-by", joined(changed, ", ")),
            ("ignored-errors", joined(ignored, "; ")),
        ];
        annotations.retain(|(_, text)| !text.is_empty());
        annotations
    }

    /// Returns the cost units of all conditions and mutations.
    pub fn cost_units(&self) -> u64 {
        let of = |i: &InvocationReport| {
            let steps = i.steps.iter().map(|s| s.cost_units);
            i.condition_cost_units + steps.sum::<u64>()
        };
        self.invocations.iter().map(of).sum()
    }
}

/// Serializes variables as `{"NAME": {"value": …}}` or `{"NAME": {"error": "…"}}`.
fn variables_by_name<S: Serializer>(
    variables: &[(String, Result<Value, EvaluationError>)],
    to: S,
) -> Result<S::Ok, S::Error> {
    let fields = variables.iter().map(|(name, value)| match value {
        Ok(value) => (name, json!({"value": value})),
        Err(error) => (name, json!({"error": error.to_string()})),
    });
    to.collect_map(fields)
}

fn joined(texts: impl Iterator<Item = String>, between: &str) -> String {
    const MAX_BYTES: usize = 4000;
    let mut all = String::new();
    for text in texts {
        if !all.is_empty() {
            all += between;
        }
        let room = MAX_BYTES.saturating_sub(all.len());
        if text.len() > room {
            let fits = |(at, c): &(usize, char)| at + c.len_utf8() <= room;
            all.extend(text.char_indices().take_while(fits).map(|(_, c)| c));
            return all + "…";
        }
        all += &text;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(message: String) -> Fault {
        Fault {
            policy: "p".into(),
            binding: None,
            kind: FaultKind::Params,
            message,
            ignored: true,
        }
    }

    #[test]
    fn audit_annotations_stay_below_4_kib() {
        let long = "é".repeat(5000);
        let many = std::iter::repeat_n("x".repeat(7), 2000);
        for messages in [vec![long], many.collect()] {
            let outcome = Outcome {
                faults: messages.into_iter().map(fault).collect(),
                ..Outcome::default()
            };
            let annotations = outcome.audit_annotations();
            let [("ignored-errors", text)] = annotations.as_slice() else {
                panic!("{annotations:?}");
            };
            assert!((3990..4096).contains(&text.len()), "{}", text.len());
            assert!(text.starts_with("p: ") && text.ends_with('…'), "{text}");
        }
    }

    #[test]
    fn json_keys_are_camel_case() {
        fn keys(value: &Value, all: &mut Vec<String>) {
            match value {
                Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                    all.push(key.clone());
                    keys(value, all);
                }),
                Value::Array(items) => items.iter().for_each(|item| keys(item, all)),
                _ => {}
            }
        }
        let step = MutationReport {
            field: String::new(),
            cost_units: 1,
            variables: Vec::new(),
            diff: None,
            changed: false,
            error: None,
        };
        let invocation = InvocationReport {
            policy: "p".into(),
            binding: "b".into(),
            param: None,
            pass: 1,
            end: InvocationEnd::Unchanged,
            condition: None,
            condition_cost_units: 1,
            steps: vec![step],
        };
        let outcome = Outcome {
            verdict: Verdict::Refused(Denial::default()),
            invocations: vec![invocation],
            faults: vec![fault(String::new())],
            skipped: vec![SkippedPolicy {
                policy: "p".into(),
                binding: None,
                why: Mismatch::NamespaceSelector,
            }],
        };
        let written = json!(outcome);
        assert_eq!(written["passedOver"][0]["why"], "namespaceSelector");
        assert_eq!(written["invocations"][0]["conditionCostUnits"], 1);
        let mut all = Vec::new();
        keys(&written, &mut all);
        assert!(all.iter().all(|key| !key.contains('_')), "{all:?}");
    }
}
