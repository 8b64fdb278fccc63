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

use super::tone;
use crate::{admin::Decision, draw::clean_text as clean};

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
    let created = binding.metadata.creation_timestamp.as_ref();
    all.extend(created.map(|t| moment(t.0, "Created", "the offer selects these objects", "none")));
    if let Some(status) = &binding.status {
        of_status(status, &mut all);
        all.extend(grace_end(sources, status, now));
        all.extend(cool_down_end(sources, now));
    }
    let eviction = sources
        .offer
        .and_then(|o| o.status.as_ref()?.last_eviction.as_ref());
    if let Some(eviction) = eviction.filter(|e| Some(&e.binding) == binding.metadata.name.as_ref())
    {
        let text = format!("pod {} from node {}", eviction.pod, eviction.node);
        all.push(moment(eviction.time.0, "Evicted", &text, "bad"));
    }
    all.extend(sources.decisions.iter().filter_map(|decision| {
        let title = format!("{}: {}", decision.action, decision.outcome);
        Some(moment(
            decision.time.parse().ok()?,
            &title,
            &decision.text,
            "near",
        ))
    }));
    all.extend(sources.events.iter().filter_map(|event| {
        let tone = if event.type_ == "Warning" {
            "near"
        } else {
            "none"
        };
        let mut title = event.reason.clone();
        if event.count > 1 {
            title += &format!(" ×{}", event.count);
        }
        Some(moment(event.time?, &title, &event.note, tone))
    }));
    // Of entries in the same second, the later one comes first, too.
    all.reverse();
    all.sort_by_key(|moment| std::cmp::Reverse(moment.time));
    all.truncate(MAX_MOMENTS);
    all
}

fn of_status(status: &ConstraintPolicyBindingStatus, all: &mut Vec<Moment>) {
    let changed = status.last_compliance_change_timestamp.as_ref();
    all.extend(changed.map(|Time(time)| {
        let compliance = status.compliance;
        moment(
            *time,
            compliance.name(),
            &status.first_reason,
            tone(compliance),
        )
    }));
    for condition in &status.conditions {
        let (title, tone) = match (condition.type_.as_str(), condition.status.as_str()) {
            ("Compliant", "False") => ("Out of range", "bad"),
            ("Compliant", "True") => ("In range", "good"),
            ("Ready", "False") => ("Cannot be evaluated", "bad"),
            ("Ready", "True") => ("Can be evaluated", "good"),
            _ => continue,
        };
        all.push(moment(
            condition.last_transition_time.0,
            title,
            &condition.reason,
            tone,
        ));
    }
    let mitigated = status.last_mitigated_timestamp.as_ref();
    let text = "the underlay controller was asked to mitigate";
    all.extend(mitigated.map(|t| moment(t.0, "Mediated", text, "near")));
}

/// Returns the time when Limit becomes Violation, while the grace time runs.
fn grace_end(
    sources: &Sources<'_>,
    status: &ConstraintPolicyBindingStatus,
    now: Timestamp,
) -> Option<Moment> {
    let mut conditions = status.conditions.iter();
    let running = conditions.find(|c| c.type_ == "Compliant" && c.reason == "Grace")?;
    let grace = duration::parse(&Enforcement::of(sources.offer?).grace).ok()?;
    let end = running.last_transition_time.0.checked_add(grace).ok()?;
    (end > now).then(|| Moment {
        is_expected: true,
        ..moment(
            end,
            "Grace ends",
            "then it is in violation, unless it is in range",
            "bad",
        )
    })
}

/// Returns the earliest time of an eviction, while the offer of a violated binding cools down.
fn cool_down_end(sources: &Sources<'_>, now: Timestamp) -> Option<Moment> {
    let in_violation = sources.binding.compliance() == Compliance::Violation;
    let next = next_eviction(sources.offer?, now).filter(|_| in_violation)?;
    Some(Moment {
        is_expected: true,
        ..moment(
            next,
            "Next eviction",
            "the offer's cool-down ends: then a pod in violation may be evicted",
            "near",
        )
    })
}

fn moment(time: Timestamp, title: &str, text: &str, tone: &'static str) -> Moment {
    Moment {
        time,
        title: clean(title),
        text: clean(text),
        tone,
        is_expected: false,
    }
}
