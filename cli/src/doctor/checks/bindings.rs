//! Bindings can be evaluated.

use std::collections::BTreeMap;

use kube::ResourceExt;
use tautline_api::constraint::{Compliance, ConstraintPolicyBinding};

use super::or_ok;
use crate::doctor::{
    cluster::State,
    finding::{Finding, counted},
};

/// A finding for each offer with bindings in Error.
pub(super) fn check(state: &State<'_>) -> Vec<Finding> {
    let Some(bindings) = &state.cluster.bindings else {
        return Vec::new();
    };
    let mut by_offer: BTreeMap<_, Vec<&ConstraintPolicyBinding>> = BTreeMap::new();
    for binding in bindings {
        let offer = (binding.namespace().unwrap_or_default(), &binding.spec.offer);
        by_offer.entry(offer).or_default().push(binding);
    }
    let findings = by_offer.into_iter().filter_map(|((namespace, offer), all)| {
        let unknown = |b: &&&ConstraintPolicyBinding| {
            let status = b.status.as_ref();
            status.is_some_and(|s| s.compliance == Compliance::Error)
        };
        let unknown: Vec<_> = all.iter().filter(unknown).collect();
        let first = unknown.first()?;
        let name = first.name_any();
        let reason = first.status.as_ref().map_or("", |s| &s.first_reason);
        let text = format!(
            "{} of {} cannot be evaluated; {name}: {reason}",
            unknown.len(),
            counted(all.len(), "binding"),
        );
        let fix = format!(
            "tautline describe binding {name} -n {namespace}; the code at the start of the reason \
             is in docs/troubleshooting.md"
        );
        let object = format!("ConstraintPolicyOffer {namespace}/{offer}");
        Some(Finding::problem("BindingsInError", object, text, fix))
    });
    let object = counted(bindings.len(), "binding");
    let ok = Finding::ok("BindingsEvaluated", object, "none is in Error");
    or_ok(findings.collect(), ok)
}
