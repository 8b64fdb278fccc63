//! The feed of the last changes: rounds, decisions on violations, and bindings.

use std::{cmp::Reverse, sync::Arc};

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use maud::{Markup, html};
use serde::Serialize;
use tautline_api::{ConstraintPolicyBinding, constraint::Compliance};
use tautline_scheduler_extender::explain::Summary;

use crate::{
    admin::Decision,
    draw::{self, clean, or_problem, tone},
    links,
};

/// The maximum number of entries.
const MAX_ENTRIES: usize = 16;
const MAX_TEXT_CHARS: usize = 160;

#[derive(Debug, Default, Serialize)]
pub(super) struct Feed {
    /// The entries, the newest first.
    pub entries: Vec<Entry>,
    /// The errors of the sources that did not answer.
    pub problems: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Entry {
    pub at: Timestamp,
    /// The kind of the entry: `round`, `action` or `binding`.
    pub kind: &'static str,
    /// The `namespace/name` of a pod or a binding.
    pub object: String,
    pub text: String,
    pub link: String,
    /// The CSS class for the colour of the entry.
    #[serde(skip)]
    pub class: &'static str,
}

impl Feed {
    pub fn new(
        summaries: Result<Vec<Summary>>,
        decisions: Result<Vec<Decision>>,
        bindings: &[Arc<ConstraintPolicyBinding>],
        now: Timestamp,
    ) -> Self {
        let mut feed = Self::default();
        let problems = &mut feed.problems;
        let summaries = or_problem(summaries, "rounds: ", problems);
        let decisions = or_problem(decisions, "decisions: ", problems);
        // Changes for the better never push out those for the worse.
        let mut rounds: Vec<&Summary> = summaries.iter().collect();
        rounds.sort_by_key(|r| r.usable > 0);
        feed.entries
            .extend(rounds.into_iter().take(MAX_ENTRIES).map(round));
        let actions = decisions.iter().take(MAX_ENTRIES).filter_map(action);
        feed.entries.extend(actions);
        feed.entries
            .extend(newest(bindings).filter_map(|b| changed(b)));
        feed.entries.retain(|e| e.at <= now);
        let is_good = |e: &Entry| matches!(e.class, "good" | "none");
        feed.entries.sort_by_key(|e| (is_good(e), Reverse(e.at)));
        feed.entries.truncate(MAX_ENTRIES);
        feed.entries.sort_by_key(|e| Reverse(e.at));
        feed
    }
}

fn round(round: &Summary) -> Entry {
    let class = if round.usable > 0 { "good" } else { "near" };
    Entry {
        at: draw::of_millis(round.at_unix_millis),
        kind: "round",
        object: format!("{}/{}", round.namespace, round.pod),
        text: round_text(round),
        link: links::pod(&round.namespace, &round.pod),
        class,
    }
}

fn round_text(round: &Summary) -> String {
    let text = match (&round.reason, round.offered_nodes.as_slice()) {
        (Some(reason), _) => format!("no usable node of {}: {reason}", round.nodes),
        (None, []) => format!("no usable node of {}", round.nodes),
        (None, [node]) => format!(
            "{} of {} nodes usable, {node} offered",
            round.usable, round.nodes
        ),
        (None, _) => format!(
            "{} of {} nodes usable, {} offered",
            round.usable, round.nodes, round.offered
        ),
    };
    clean(&text, MAX_TEXT_CHARS)
}

fn action(decision: &Decision) -> Option<Entry> {
    let (namespace, name) = decision.binding.split_once('/')?;
    let text = format!(
        "{}: {} {}",
        decision.action, decision.outcome, decision.text
    );
    Some(Entry {
        at: decision.time.parse().ok()?,
        kind: "action",
        object: decision.binding.clone(),
        text: clean(&text, MAX_TEXT_CHARS),
        link: links::binding(namespace, name),
        class: "near",
    })
}

/// Returns the bindings whose compliance has changed last: first those that are not compliant, of
/// these the newest, and the worst first if they changed at the same time.
fn newest(
    bindings: &[Arc<ConstraintPolicyBinding>],
) -> impl Iterator<Item = &Arc<ConstraintPolicyBinding>> {
    let changed = bindings.iter().filter(|b| changed_at(b).is_some());
    let mut all: Vec<_> = changed.collect();
    let order = |b: &&Arc<ConstraintPolicyBinding>| {
        let rank = b.compliance().rank();
        let is_good = rank > Compliance::Limit.rank();
        (is_good, Reverse(changed_at(b)), rank)
    };
    if all.len() > MAX_ENTRIES {
        all.select_nth_unstable_by_key(MAX_ENTRIES - 1, order);
        all.truncate(MAX_ENTRIES);
    }
    all.sort_by_key(order);
    all.into_iter()
}

fn changed_at(binding: &ConstraintPolicyBinding) -> Option<Timestamp> {
    let status = binding.status.as_ref()?;
    Some(status.last_compliance_change_timestamp.as_ref()?.0)
}

fn changed(binding: &ConstraintPolicyBinding) -> Option<Entry> {
    let (namespace, name) = (binding.namespace().unwrap_or_default(), binding.name_any());
    let state = binding.compliance();
    let reason = binding.status.as_ref().map_or("", |s| &s.first_reason);
    let text = match reason {
        "" => format!("now {}", state.name()),
        reason => format!("now {}: {reason}", state.name()),
    };
    Some(Entry {
        at: changed_at(binding)?,
        kind: "binding",
        text: clean(&text, MAX_TEXT_CHARS),
        link: links::binding(&namespace, &name),
        object: format!("{namespace}/{name}"),
        class: tone(state.name()),
    })
}

pub(super) fn render(feed: &Feed, now: Timestamp) -> Markup {
    html! {
        h2 { "Last changes" }
        @for problem in &feed.problems { p .error { (problem) } }
        @if feed.entries.is_empty() {
            p .note { "Nothing yet: rounds of pods, changes of bindings, and evictions show here." }
        }
        ol .feed { @for entry in &feed.entries { (line(entry, now)) } }
    }
}

fn line(entry: &Entry, now: Timestamp) -> Markup {
    let kind = match entry.kind {
        "round" => "pod",
        "action" => "action on",
        other => other,
    };
    html! {
        li {
            span .dim { (draw::ago(entry.at, now)) }
            (draw::state(entry.class, kind))
            span { a href=(entry.link) { (clean(&entry.object, 130)) } " " (entry.text) }
        }
    }
}
