//! Builds an offer's status: the number of its bindings, their compliance, and problems.

use tautline_api::constraint::ConstraintPolicyOfferStatus;
use tautline_core::{
    Snapshot,
    binding::{OFFER_LABEL, is_countable},
    binding_quota::{BindingLimits, Bound, Grant},
    compliance_state::UnixTime,
    index::OfferEntry,
    model::TargetKind,
    planning::code,
    text,
};

use crate::{
    binding_status::{self, READY},
    reconciler::KindStates,
};

/// The limit for messages, which contain names of targets and policies that tenants chose.
const MAX_MESSAGE_CHARS: usize = 8192;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BindingSummary<'a> {
    pub grant: Grant,
    /// The number of bindings with the offer's label.
    pub existing: usize,
    /// The number of desired bindings for which an equivalent one without that label exists.
    pub stand_ins: usize,
    /// The number of compliant bindings with the offer's label.
    pub compliant: usize,
    /// The reason why a binding could not be created or deleted.
    pub write_error: Option<&'a str>,
}

/// The offer's condition `Ready`.
#[derive(Debug, PartialEq)]
pub(crate) struct OfferCondition {
    pub ready: bool,
    pub reason: &'static str,
    pub message: String,
}

pub(crate) fn condition(
    entry: &OfferEntry,
    bindings: &BindingSummary<'_>,
    snapshot: &Snapshot,
    kinds: &KindStates,
    limits: &BindingLimits,
) -> OfferCondition {
    let problems = problems(entry, bindings, snapshot, kinds, limits);
    if let Some((reason, _)) = problems.first() {
        let texts: Vec<&str> = problems.iter().map(|(_, text)| text.as_str()).collect();
        return OfferCondition {
            ready: false,
            reason,
            message: texts.join("; "),
        };
    }
    let empty: Vec<&str> = entry
        .all_members()
        .filter(|(_, members)| !members.values().any(is_countable))
        .map(|(target, _)| &**target)
        .collect();
    let (reason, message) = if !empty.is_empty() {
        let text = format!("target {} selects nothing", empty.join(", "));
        ("NothingSelected", text)
    } else if bindings.grant.count == 0 {
        let text = "all targets select one and the same object, which has no binding with itself";
        ("NothingSelected", text.to_owned())
    } else {
        ("InStep", String::new())
    };
    OfferCondition {
        ready: true,
        reason,
        message,
    }
}

fn problems(
    entry: &OfferEntry,
    bindings: &BindingSummary<'_>,
    snapshot: &Snapshot,
    kinds: &KindStates,
    limits: &BindingLimits,
) -> Vec<(&'static str, String)> {
    let offer = &entry.offer;
    let mut problems = Vec::new();
    // Pods are always watched, and endpoints are also found through EndpointSlices.
    let watched = |kind| !matches!(kind, TargetKind::Pod | TargetKind::Endpoint);
    for target in offer.targets.iter().filter(|t| watched(t.kind)) {
        if let Some(why) = kinds.missing(target) {
            problems.push(("KindNotServed", format!("target {}: {why}", target.name)));
        }
    }
    if let Some((cluster, fault)) = snapshot.remote_fault(offer) {
        problems.push((code::CLUSTER_UNAVAILABLE, fault.text(cluster)));
    }
    if offer.policies.is_empty() {
        let text = "spec.policies is empty; name a ConstraintPolicy of this namespace";
        problems.push(("NoPolicies", text.to_owned()));
    }
    let absent: Vec<&str> = offer
        .policies
        .iter()
        .filter(|p| snapshot.policy(&offer.namespace, p).is_none())
        .map(|p| &**p)
        .collect();
    if !absent.is_empty() {
        let text = format!(
            "ConstraintPolicy {} does not exist in this namespace",
            absent.join(", ")
        );
        problems.push(("PolicyMissing", text));
    }
    problems.extend(exceeded(&bindings.grant, limits));
    if let Some(error) = bindings.write_error {
        problems.push(("WriteRefused", error.to_owned()));
    }
    let desired = bindings.grant.count;
    let existing = bindings.existing + bindings.stand_ins;
    if problems.is_empty() && existing != desired {
        let text = format!("{existing} bindings exist, {desired} are called for");
        problems.push(("InProgress", text));
    }
    problems
}

/// Returns the reason code and the message about the limit that withholds bindings; `None` if no
/// binding is withheld.
pub(crate) fn exceeded(grant: &Grant, limits: &BindingLimits) -> Option<(&'static str, String)> {
    let made = grant.withheld.saturating_add(grant.count as u128);
    let exist = match grant.count {
        0 => "none exists".to_owned(),
        count => format!("only the first {count} exist"),
    };
    let BindingLimits {
        offer,
        namespace,
        total,
    } = limits;
    let fewer = "select fewer objects";
    let (reason, bound) = match grant.bound? {
        Bound::Offer => (
            "CapExceeded",
            format!("an offer may have {offer}; {fewer}, split the offer, or raise --max-bindings"),
        ),
        Bound::Namespace => (
            "NamespaceCapExceeded",
            format!(
                "the offers of a namespace may have {namespace}, and earlier ones have the rest; \
                 {fewer}, or raise --max-namespace-bindings"
            ),
        ),
        Bound::Total => (
            "TotalCapExceeded",
            format!(
                "all offers of the cluster may have {total}, and earlier ones have the rest; \
                 {fewer}, or raise --max-total-bindings"
            ),
        ),
    };
    let text = format!("the targets make {made} bindings, and {exist}: {bound}");
    Some((reason, text))
}

pub(crate) fn status(
    name: &str,
    generation: i64,
    bindings: &BindingSummary<'_>,
    ready: OfferCondition,
    before: &ConstraintPolicyOfferStatus,
    now: UnixTime,
) -> ConstraintPolicyOfferStatus {
    let status = if ready.ready { "True" } else { "False" };
    let message = text::sanitize(&ready.message, MAX_MESSAGE_CHARS).into_owned();
    let (conditions, reason) = (&before.conditions, ready.reason);
    let ready = binding_status::condition(conditions, READY, status, reason, message, None, now);
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    ConstraintPolicyOfferStatus {
        observed_generation: (generation > 0).then_some(generation),
        binding_count: number(bindings.existing),
        compliant_binding_count: number(bindings.compliant),
        binding_selector: format!("{OFFER_LABEL}={name}"),
        // Another field manager owns this field.
        last_eviction: None,
        conditions: vec![ready],
    }
}
