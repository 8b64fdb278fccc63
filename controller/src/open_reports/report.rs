//! The content of an offer's report.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use tautline_api::constraint::{Compliance, PolicyDetail};
use tautline_core::{
    binding::OFFER_LABEL,
    names::{API_VERSION as OWN_API_VERSION, CONTROLLER},
    planning::fnv1a_64,
    reference::Reference,
    text,
};

use crate::binding_spec::{BindingSpec, BindingStatus};

pub(crate) const GROUP: &str = "openreports.io";
pub(crate) const VERSION: &str = "v1alpha1";
const API_VERSION: &str = "openreports.io/v1alpha1";
pub(crate) const KIND: &str = "Report";
pub(crate) const PLURAL: &str = "reports";

/// The maximum number of results in a report. With the longest messages, such a report stays below
/// half of etcd's limit.
const MAX_RESULTS: usize = 400;
const MAX_MESSAGE_CHARS: usize = 512;
const MAX_NAME_BYTES: usize = 253;
/// The annotation with the number of bindings that the report leaves out.
const LEFT_OUT: &str = "tautline.io/results-left-out";
const CATEGORY: &str = "Placement constraints";

/// The part of a binding that its result shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub uid: Box<str>,
    compliance: Compliance,
    policy: Box<str>,
    rule: Box<str>,
    provider: Box<str>,
    message: Box<str>,
    /// The Unix time of the last change of compliance, in seconds.
    since: Option<i64>,
    targets: Box<[Reference]>,
}

impl Row {
    pub fn new(spec: &BindingSpec, status: &BindingStatus) -> Self {
        let policy = worst(&status.details, status.compliance);
        let rule = policy.and_then(|p| {
            let mut rules = p.rule_details.iter();
            rules.find(|r| r.compliance == p.compliance)
        });
        let since = status.last_compliance_change_timestamp.as_ref();
        Self {
            uid: spec.uid.clone(),
            compliance: status.compliance,
            policy: policy.map_or("", |p| &p.policy).into(),
            rule: rule.map_or("", |r| &r.rule).into(),
            provider: rule.map_or("", |r| &r.provider).into(),
            message: text::sanitize(&status.first_reason, MAX_MESSAGE_CHARS).into(),
            since: since.map(|t| t.0.as_second()),
            targets: spec.targets.values().cloned().collect(),
        }
    }

    fn result(&self, offer: &str, binding: &str) -> Value {
        let (_, result, severity) = result_of(self.compliance);
        // The field `policy` is required.
        let policy = if self.policy.is_empty() {
            offer
        } else {
            &self.policy
        };
        let timestamp = self.since.map(|at| json!({"seconds": at, "nanos": 0}));
        // Resources have no cluster: readers would take a pod of another one for a local one.
        let local = self.targets.iter().filter(|t| t.cluster.is_empty());
        let resources: Vec<Value> = local.map(resource).collect();
        without_empty_fields(json!({
            "policy": policy, "rule": self.rule, "category": CATEGORY, "message": self.message,
            "result": result, "severity": severity, "scored": true, "timestamp": timestamp,
            "resources": resources,
            "properties": without_empty_fields(json!({
                "binding": binding, "compliance": format!("{:?}", self.compliance),
                "provider": self.provider,
            })),
        }))
    }
}

/// Returns the first policy with the compliance of the binding, or else the first policy.
fn worst(details: &[PolicyDetail], compliance: Compliance) -> Option<&PolicyDetail> {
    let first = details.iter().find(|p| p.compliance == compliance);
    first.or(details.first())
}

fn resource(target: &Reference) -> Value {
    without_empty_fields(json!({
        "apiVersion": target.api_version, "kind": target.kind,
        "namespace": target.namespace, "name": target.name,
    }))
}

fn without_empty_fields(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null() && *value != "");
    }
    object
}

/// Returns the position of a compliance in a report, where the worst is 0; the result in terms of
/// OpenReports; and a severity if the result is not as requested.
fn result_of(compliance: Compliance) -> (u8, &'static str, Option<&'static str>) {
    match compliance {
        Compliance::Violation => (0, "fail", Some("high")),
        Compliance::Error => (1, "error", Some("medium")),
        Compliance::Limit => (2, "warn", Some("low")),
        Compliance::Pending => (3, "skip", None),
        Compliance::Compliant => (4, "pass", None),
    }
}

/// Returns the report of an offer: the worst bindings first, and a summary of all bindings.
pub(super) fn content(
    namespace: &str,
    offer: &str,
    uid: &str,
    mut rows: Vec<(&str, &Row)>,
) -> Value {
    rows.sort_by_key(|(name, row)| (result_of(row.compliance).0, *name));
    let count = |result: &str| {
        let same = |(_, row): &&(&str, &Row)| result_of(row.compliance).1 == result;
        rows.iter().filter(same).count()
    };
    let summary: Map<String, Value> = ["pass", "fail", "warn", "error", "skip"]
        .iter()
        .map(|result| ((*result).to_owned(), count(result).into()))
        .collect();
    let shown = &rows[..rows.len().min(MAX_RESULTS)];
    let results: Vec<Value> = shown.iter().map(|(b, row)| row.result(offer, b)).collect();
    let mut labels = json!({"app.kubernetes.io/managed-by": CONTROLLER});
    // A label's value has at most 63 bytes, while a name may be longer.
    if offer.len() <= 63 {
        labels[OFFER_LABEL] = offer.into();
    }
    json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": {
            "name": name(offer), "namespace": namespace, "labels": labels,
            "annotations": {LEFT_OUT: (rows.len() - shown.len()).to_string()},
            "ownerReferences": [{
                "apiVersion": OWN_API_VERSION, "kind": "ConstraintPolicyOffer", "name": offer, "uid": uid,
                "controller": true, "blockOwnerDeletion": false,
            }],
        },
        "source": "tautline",
        "scope": {
            "apiVersion": OWN_API_VERSION, "kind": "ConstraintPolicyOffer",
            "namespace": namespace, "name": offer, "uid": uid,
        },
        "configuration": {"limits": {"maxResults": MAX_RESULTS}},
        "summary": summary, "results": results,
    })
}

/// Returns the name of an offer's report.
pub(super) fn name(offer: &str) -> String {
    let mut name = format!("tautline-{offer}");
    if name.len() > MAX_NAME_BYTES {
        name.truncate(MAX_NAME_BYTES - 17);
        _ = write!(name, "-{:016x}", fnv1a_64(&[offer]));
    }
    name
}
