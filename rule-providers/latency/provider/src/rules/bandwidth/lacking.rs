//! Lists the bindings that lacked bandwidth before the process started. A provider learns who came
//! first by watching; after a restart, the statuses of the bindings say who kept what it reserved.

use std::time::Duration;

use hashbrown::HashSet;
use kube::{Api, Client, ResourceExt, api::ListParams, core::DeserializeGuard};
use tautline_api::constraint::{COMPLIANT, ConstraintPolicyBinding, WAS_WITHIN_LIMIT};
use tautline_core::{Compliance, model::key};
use tautline_runtime::api_call::{ApiCallError, within};

use super::RULE;

const API_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of bindings in a page of the list.
const PAGE_BINDINGS: u32 = 500;

/// Returns the bindings, as `namespace/name`, that lack bandwidth. They are not known, and the
/// result is empty, if the cluster has no bindings or does not show them to the provider.
///
/// # Errors
/// The API server does not answer, or answers with an error.
pub(crate) async fn lacking(client: &Client) -> Result<HashSet<String>, ApiCallError> {
    let api: Api<DeserializeGuard<ConstraintPolicyBinding>> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE_BINDINGS);
    let mut found = HashSet::new();
    loop {
        let page = match within(API_TIMEOUT, api.list(&params)).await {
            Err(error) if matches!(error.code(), Some(403 | 404)) => {
                tracing::warn!(%error, "seniority of bandwidth is by age: bindings are not readable");
                return Ok(found);
            }
            page => page?,
        };
        let bindings = page.items.into_iter().filter_map(|guarded| guarded.0.ok());
        let lacking = bindings.filter(is_lacking);
        found.extend(lacking.map(|b| key(&b.namespace().unwrap_or_default(), &b.name_any())));
        let next = page.metadata.continue_.unwrap_or_default();
        if next.is_empty() {
            return Ok(found);
        }
        params = params.continue_token(&next);
    }
}

/// Returns whether the rule `bandwidth` had less than its request when it was last evaluated. While
/// a provider is away the rule is in Error, and the binding's condition tells what was before.
fn is_lacking(binding: &ConstraintPolicyBinding) -> bool {
    let Some(status) = &binding.status else {
        return false;
    };
    let was_lacking = || {
        let mut conditions = status.conditions.iter();
        let condition = conditions.find(|c| c.type_ == COMPLIANT);
        condition.is_some_and(|c| c.status == "False" || c.reason == WAS_WITHIN_LIMIT)
    };
    let rules = status
        .details
        .iter()
        .flat_map(|policy| &policy.rule_details);
    let mut own = rules.filter(|rule| rule.rule == RULE).map(|r| r.compliance);
    own.any(|compliance| match compliance {
        Compliance::Violation | Compliance::Limit => true,
        Compliance::Error => was_lacking(),
        Compliance::Compliant | Compliance::Pending => false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lacks(rule: &str, compliance: &str, condition: (&str, &str)) -> bool {
        let binding = json!({
            "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyBinding",
            "metadata": {"name": "b", "namespace": "shop"},
            "spec": {"offer": "o", "targets": {}},
            "status": {"compliance": "Violation", "firstReason": "", "details": [
                {"policy": "p", "compliance": "Violation", "ruleDetails": [
                    {"rule": rule, "compliance": compliance},
                    {"rule": "latency", "compliance": "Violation"}]}],
                "conditions": [{"type": "Compliant", "status": condition.0, "reason": condition.1,
                    "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        is_lacking(&serde_json::from_value(binding).unwrap())
    }

    #[test]
    fn bindings_lack_bandwidth_by_their_own_rule_before_and_during_errors() {
        let (in_range, out) = (("True", "InRange"), ("False", "Violation"));
        for (rule, compliance, condition, expected) in [
            ("bandwidth", "Violation", out, true),
            ("bandwidth", "Limit", ("True", "WithinLimit"), true),
            ("bandwidth", "Compliant", out, false),
            ("bandwidth", "Compliant", in_range, false),
            ("bandwidth", "Error", ("False", "Paused"), true),
            ("bandwidth", "Error", ("Unknown", "WasWithinLimit"), true),
            ("bandwidth", "Error", ("Unknown", "WasInRange"), false),
            ("bandwidth", "Pending", ("Unknown", "Pending"), false),
            ("jitter", "Violation", out, false),
        ] {
            let found = lacks(rule, compliance, condition);
            assert_eq!(found, expected, "{rule} {compliance} {condition:?}");
        }
    }
}
