//! The history of a binding, from its objects, its Kubernetes events and the controller's
//! decisions.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde::Serialize;
use tautline_api::{
    ConstraintPolicyBinding, ConstraintPolicyOffer,
    constraint::{Compliance, ConstraintPolicyBindingStatus},
    display::{Enforcement, EventSummary, next_eviction},
};
use tautline_core::duration;

use crate::{
    admin::Decision,
    draw::{clean_text as clean, tone},
};

const MAX_MOMENTS: usize = 200;

/// An entry of the timeline: something that happened or is expected.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Moment {
    pub time: Timestamp,
    pub title: String,
    pub text: String,
    /// The CSS class for the entry's colour.
    #[serde(skip)]
    pub tone: &'static str,
    /// True if the time is in the future.
    pub is_expected: bool,
}

pub(super) struct Sources<'a> {
    pub binding: &'a ConstraintPolicyBinding,
    pub offer: Option<&'a ConstraintPolicyOffer>,
    pub events: &'a [EventSummary],
    pub decisions: &'a [Decision],
}

/// Returns the timeline of a binding, the newest entry first.
pub(super) fn timeline(sources: &Sources<'_>, now: Timestamp) -> Vec<Moment> {
    let binding = sources.binding;
    let mut all = Vec::new();
    // Moments without a known time are left out.
    let mut add = |time: Option<Timestamp>, title: &str, text: &str, tone| {
        all.extend(time.map(|time| Moment {
            time,
            title: clean(title),
            text: clean(text),
            tone,
            is_expected: time > now,
        }));
    };
    let time = |time: Option<&Time>| time.map(|time| time.0);
    let created = time(binding.metadata.creation_timestamp.as_ref());
    add(
        created,
        "Created",
        "the offer selects these objects",
        "none",
    );
    if let Some(status) = &binding.status {
        let (state, reason) = (status.compliance, &status.first_reason);
        let changed = time(status.last_compliance_change_timestamp.as_ref());
        add(changed, state.name(), reason, tone(state.name()));
        for condition in &status.conditions {
            let (title, tone) = match (&*condition.type_, &*condition.status) {
                ("Compliant", "False") => ("Out of range", "bad"),
                ("Compliant", "True") => ("In range", "good"),
                ("Ready", "False") => ("Cannot be evaluated", "bad"),
                ("Ready", "True") => ("Can be evaluated", "good"),
                _ => continue,
            };
            let at = time(Some(&condition.last_transition_time));
            add(at, title, &condition.reason, tone);
        }
        let mitigated = time(status.last_mitigated_timestamp.as_ref());
        let text = "the underlay controller was asked to mitigate";
        add(mitigated, "Mitigation requested", text, "near");
        let text = "then it is in violation, unless it is in range";
        add(grace_end(sources, status, now), "Grace ends", text, "bad");
        let text = "the offer's cool-down ends: then a pod in violation may be evicted";
        add(cool_down_end(sources, now), "Next eviction", text, "near");
    }
    let offer = sources.offer.and_then(|offer| offer.status.as_ref());
    let eviction = offer.and_then(|status| status.last_eviction.as_ref());
    if let Some(eviction) = eviction.filter(|e| Some(&e.binding) == binding.metadata.name.as_ref())
    {
        let text = format!("pod {} from node {}", eviction.pod, eviction.node);
        add(Some(eviction.time.0), "Evicted", &text, "bad");
    }
    for decision in sources.decisions {
        let title = format!("{}: {}", decision.action, decision.outcome);
        add(decision.time.parse().ok(), &title, &decision.text, "near");
    }
    for event in sources.events {
        let is_warning = event.type_ == "Warning";
        let mut title = event.reason.clone();
        if event.count > 1 {
            title += &format!(" ×{}", event.count);
        }
        let tone = if is_warning { "near" } else { "none" };
        add(event.time, &title, &event.note, tone);
    }
    // Of entries in the same second, the later one comes first, too.
    all.reverse();
    all.sort_by_key(|moment| std::cmp::Reverse(moment.time));
    all.truncate(MAX_MOMENTS);
    all
}

/// Returns the time when Limit becomes Violation, while the grace time runs.
fn grace_end(
    sources: &Sources<'_>,
    status: &ConstraintPolicyBindingStatus,
    now: Timestamp,
) -> Option<Timestamp> {
    let mut conditions = status.conditions.iter();
    let running = conditions.find(|c| c.type_ == "Compliant" && c.reason == "Grace")?;
    let grace = duration::parse(&Enforcement::of(sources.offer?).grace).ok()?;
    let end = running.last_transition_time.0.checked_add(grace).ok()?;
    (end > now).then_some(end)
}

/// Returns the earliest time of an eviction, while the offer of a violated binding cools down.
fn cool_down_end(sources: &Sources<'_>, now: Timestamp) -> Option<Timestamp> {
    let in_violation = sources.binding.compliance() == Compliance::Violation;
    next_eviction(sources.offer?, now).filter(|_| in_violation)
}
