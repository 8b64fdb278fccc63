//! An offer's own status: how many bindings, how they stand, what is wrong.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use tautline_api::constraint::ConstraintPolicyOfferStatus;
use tautline_core::{
    Compliance, Snapshot,
    binding::{OFFER_LABEL, is_countable},
    compliance_state::UnixTime,
    index::OfferEntry,
    model::TargetKind,
    text,
};
use tautline_runtime::dynamic_watch::WatchedKinds;
use tokio::time::Instant;

use crate::{keeper::Op, known::Key, status::time_of};

/// Messages name targets and policies as tenants wrote them.
const LONGEST_MESSAGE_CHARS: usize = 8192;

/// What the controller keeps of an offer.
#[derive(Debug, Default)]
pub(crate) struct OfferState {
    /// The UID of the offer that `written` is of.
    pub uid: Box<str>,
    /// The offer's bindings as they exist, and how many stand how.
    pub bindings: HashSet<Key>,
    pub counts: [usize; 5],
    /// How many tuples it calls for, the cap aside.
    pub called_for: u128,
    /// Rules and their providers, as a fingerprint.
    pub asked: u64,
    /// Its status may be another now.
    pub changed: bool,
    /// What the API server last took, and when it was asked last.
    pub written: Option<ConstraintPolicyOfferStatus>,
    pub written_at: Option<Instant>,
    pub writing: bool,
    /// Bindings to be made and deleted, and how many are under way.
    pub ops: VecDeque<Op>,
    pub in_flight: usize,
    /// To be compared again when all of them are done.
    pub again: bool,
    /// Why a binding could not be made or deleted, and how often in a row.
    pub refusal: Option<String>,
    pub refusals: u32,
    /// When it is compared again because of that, and the bindings that wait.
    pub retry_at: Option<Instant>,
    pub held: HashMap<Key, Instant>,
}

impl OfferState {
    pub(crate) fn count(&mut self, compliance: Compliance, more: bool) {
        let count = &mut self.counts[compliance as usize];
        *count = if more {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
        self.changed = true;
    }
}

/// What is wrong with an offer, or not, as a reason code and a text.
pub(crate) struct Verdict {
    pub ok: bool,
    pub reason: &'static str,
    pub text: String,
}

/// The offer as it is now cannot be read.
pub(crate) fn invalid(why: &str) -> Verdict {
    Verdict {
        ok: false,
        reason: "Invalid",
        text: why.to_owned(),
    }
}

/// Looks at everything that an offer needs.
pub(crate) fn verdict(
    entry: &OfferEntry,
    state: &OfferState,
    snapshot: &Snapshot,
    kinds: &WatchedKinds,
    cap: usize,
) -> Verdict {
    let offer = &entry.offer;
    let mut wrong: Vec<(&'static str, String)> = Vec::new();
    for target in offer.targets.iter().filter(|t| t.kind != TargetKind::Pod) {
        let (api_version, kind) = target.selected_kind();
        // Endpoints are found by their slices, too.
        if target.kind != TargetKind::Endpoint
            && let Some(why) = kinds.missing(api_version, kind)
        {
            wrong.push(("KindNotServed", format!("target {}: {why}", target.name)));
        }
    }
    if offer.policies.is_empty() {
        let text = "spec.policies is empty; name a ConstraintPolicy of this namespace";
        wrong.push(("NoPolicies", text.to_owned()));
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
        wrong.push(("PolicyMissing", text));
    }
    if state.called_for > cap as u128 {
        let text = format!(
            "the targets make {} bindings, the cap is {cap}: only the first {cap} exist; select \
             fewer objects, split the offer, or raise --max-bindings",
            state.called_for
        );
        wrong.push(("CapExceeded", text));
    }
    if let Some(refusal) = &state.refusal {
        wrong.push(("WriteRefused", refusal.clone()));
    }
    let wanted = state.called_for.min(cap as u128);
    let (there, wanted) = (state.bindings.len(), usize::try_from(wanted).unwrap_or(cap));
    if wrong.is_empty() && there != wanted {
        let text = format!("{there} bindings exist, {wanted} are called for");
        wrong.push(("InProgress", text));
    }
    if let Some((reason, _)) = wrong.first() {
        let texts: Vec<&str> = wrong.iter().map(|(_, text)| text.as_str()).collect();
        return Verdict {
            ok: false,
            reason,
            text: texts.join("; "),
        };
    }
    let idle: Vec<&str> = offer
        .targets
        .iter()
        .zip(&entry.members)
        .filter(|(_, members)| !members.values().any(is_countable))
        .map(|(target, _)| &*target.name)
        .collect();
    let (reason, text) = match idle.as_slice() {
        [] => ("InStep", String::new()),
        idle => (
            "NothingSelected",
            format!("target {} selects nothing", idle.join(", ")),
        ),
    };
    Verdict {
        ok: true,
        reason,
        text,
    }
}

/// The status of an offer; `before` is what it was.
pub(crate) fn status(
    offer: &str,
    state: &OfferState,
    verdict: Verdict,
    before: &ConstraintPolicyOfferStatus,
    now: UnixTime,
) -> ConstraintPolicyOfferStatus {
    let status = if verdict.ok { "True" } else { "False" };
    let old = before.conditions.iter().find(|c| c.type_ == "Ready");
    let since = match old {
        Some(old) if old.status == status => old.last_transition_time.clone(),
        _ => time_of(now),
    };
    let ready = Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: verdict.reason.to_owned(),
        message: text::sanitize(&verdict.text, LONGEST_MESSAGE_CHARS).into_owned(),
        last_transition_time: since,
        observed_generation: None,
    };
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    ConstraintPolicyOfferStatus {
        binding_count: number(state.bindings.len()),
        compliant_binding_count: number(state.counts[Compliance::Compliant as usize]),
        binding_selector: format!("{OFFER_LABEL}={offer}"),
        // Written by whoever evicts, under a name of its own.
        last_eviction: None,
        conditions: vec![ready],
    }
}
