//! Offers can be used, and their policies exist.

use kube::ResourceExt;
use tautline_api::convert;

use super::or_ok;
use crate::doctor::{
    cluster::State,
    finding::{Finding, counted},
};

pub(super) fn check(state: &State<'_>) -> Vec<Finding> {
    let (Some(offers), Some(policies)) = (&state.cluster.offers, &state.cluster.policies) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for policy in policies {
        if let Err(error) = convert::policy(policy) {
            let namespace = policy.namespace().unwrap_or_default();
            let object = format!("ConstraintPolicy {namespace}/{}", policy.name_any());
            let text = format!("cannot be used: {error}");
            findings.push(Finding::problem(
                "PolicyInvalid",
                object,
                text,
                "correct the field",
            ));
        }
    }
    for offer in offers {
        let namespace = offer.namespace().unwrap_or_default();
        let object = format!("ConstraintPolicyOffer {namespace}/{}", offer.name_any());
        if let Err(error) = convert::offer(offer) {
            let text = format!("cannot be used: {error}");
            findings.push(Finding::problem(
                "OfferInvalid",
                object,
                text,
                "correct the field",
            ));
            continue;
        }
        let exists = |name: &str| {
            let mut own = policies.iter();
            own.any(|p| p.namespace().as_deref() == Some(&namespace) && p.name_any() == name)
        };
        for policy in offer.spec.policies.iter().filter(|p| !exists(p)) {
            let text = format!("names the ConstraintPolicy {policy}, which does not exist");
            let fix = format!(
                "create the policy in namespace {namespace}, or correct spec.policies; \
                 tautline get policies -n {namespace}"
            );
            findings.push(Finding::problem("PolicyMissing", &object, text, fix));
        }
    }
    let text = "each can be used, and its policies exist";
    or_ok(
        findings,
        Finding::ok("OffersUsable", counted(offers.len(), "offer"), text),
    )
}
