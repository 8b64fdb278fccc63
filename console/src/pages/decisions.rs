//! `/decisions` lists the last planning rounds and the pods without a node.

mod matrix;
mod matrix_table;
pub(super) mod pod;
mod pod_state;
mod round;
mod what_if;
mod why_not;

use std::collections::HashMap;

use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;
use tautline_core::{Snapshot, model::Pod};
use tautline_scheduler_extender::explain::Summary;

use crate::{
    admin,
    console::lists,
    draw::{self, clean, error_line, not_known, state},
    form, links,
    request::{PageRequest, PageResult},
    table::{Window, column, name, number, table, text},
};

/// The number of waiting pods above the rounds; `view=waiting` lists all.
const FIRST_WAITING_PODS: usize = 10;
const MAX_NAME_CHARS: usize = 130;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    /// The number of pods without a node that match the filter.
    waiting_total: usize,
    waiting: Window<Waiting>,
    rounds: Option<Window<Summary>>,
    /// The reason why the rounds are not known.
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Waiting {
    namespace: String,
    pod: String,
    /// The rules that left the pod without a node.
    rejected_by: Vec<String>,
    /// The reason as a sentence, if the last round is known.
    why_pending: Option<String>,
    gated: bool,
    scheduler: String,
}

/// The filter, from the fields of the query.
struct Filter<'a> {
    namespace: Option<&'a str>,
    /// A part of `namespace/pod`, in lower case.
    text: Option<String>,
    reason: Option<&'a str>,
    /// The wanted verdict of rounds: true if a node is usable; `None` for any verdict.
    usable: Option<bool>,
}

impl<'a> Filter<'a> {
    fn new(request: &'a PageRequest) -> PageResult<Self> {
        Ok(Self {
            namespace: request.field("namespace"),
            text: request.field("q").map(|q| q.trim().to_lowercase()),
            reason: request.field("reason"),
            usable: request.choice("verdict", &[("usable", true), ("none", false)])?,
        })
    }

    fn names(&self, namespace: &str, pod: &str) -> bool {
        let has = |text: &String| format!("{namespace}/{pod}").to_lowercase().contains(text);
        self.namespace.is_none_or(|n| n == namespace) && self.text.as_ref().is_none_or(has)
    }

    fn waiting(&self, pod: &Pod) -> bool {
        let (rules, gated) = causes(pod);
        let by_reason = match self.reason {
            None => true,
            Some("gated") => rules.is_empty() && gated,
            Some("other") => rules.is_empty() && !gated,
            Some(rule) => rules.iter().any(|r| **r == *rule),
        };
        by_reason && self.names(&pod.namespace, &pod.name)
    }

    fn round(&self, round: &Summary) -> bool {
        let usable = self
            .usable
            .is_none_or(|usable| usable == (round.usable > 0));
        usable && self.names(&round.namespace, &round.pod)
    }
}

pub(super) async fn page(request: &PageRequest) -> PageResult {
    let now = Timestamp::now();
    let only_waiting = request.choice("view", &[("waiting", ())])?.is_some();
    let filter = Filter::new(request)?;
    let snapshot = request.console.store.snapshot();
    let mut waiting = waiting(&snapshot, &filter);
    let waiting_total = waiting.len();
    let mut problem = None;
    let mut all = match admin::summaries(&*request.console.source).await {
        Ok(all) => all,
        Err(error) => {
            problem = Some(error_line(&error));
            Vec::new()
        }
    };
    let sentences = Sentences::new(&all);
    let row = |pod: &&Pod| waiting_row(pod, &sentences);
    let waiting = if only_waiting {
        problem = None;
        Window::new(request, &waiting, row)?
    } else {
        waiting.truncate(FIRST_WAITING_PODS);
        Window::whole(waiting.iter().map(row).collect(), waiting_total)
    };
    let mut rounds = None;
    if !only_waiting && problem.is_none() {
        all.retain(|r| filter.round(r));
        rounds = Some(Window::new(request, &all, Summary::clone)?);
    }
    let view = View {
        waiting_total,
        waiting,
        rounds,
        problem,
    };
    let title = if only_waiting {
        "Pods without a node"
    } else {
        "Decisions"
    };
    let command = "explain NAMESPACE/POD";
    request.respond(title, command, &view, |view| render(view, request, now))
}

/// Returns the rules that left a pod without a node, and whether it has scheduling gates.
pub(super) fn causes(pod: &Pod) -> (&[Box<str>], bool) {
    let placement = pod.placement.as_deref();
    let rules = placement.map_or(&[][..], |p| &p.rejected_by);
    (rules, placement.is_some_and(|p| p.gated))
}

/// Returns the pods without a node that match the filter, sorted by namespace and name.
fn waiting<'a>(snapshot: &'a Snapshot, filter: &Filter<'_>) -> Vec<&'a Pod> {
    let pods = snapshot.pods().map(|p| &**p);
    let mut pods: Vec<&Pod> = pods
        .filter(|p| p.waits_for_node() && filter.waiting(p))
        .collect();
    pods.sort_unstable_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    pods
}

/// The sentences of the last rounds, by the UID of the pod.
pub(super) struct Sentences(HashMap<String, String>);

impl Sentences {
    pub(super) fn new(rounds: &[Summary]) -> Self {
        let all = rounds.iter();
        let known = all.filter_map(|r| Some((r.uid.clone(), r.why_pending.clone()?)));
        Self(known.collect())
    }

    /// Returns why a pod waits, if its last round is known.
    pub(super) fn of(&self, pod: &Pod) -> Option<String> {
        self.0.get(&*pod.uid).cloned()
    }
}

fn waiting_row(pod: &&Pod, sentences: &Sentences) -> Waiting {
    let (rules, gated) = causes(pod);
    let scheduler = pod.placement.as_deref().map_or("", |p| &p.scheduler);
    Waiting {
        namespace: pod.namespace.to_string(),
        pod: pod.name.to_string(),
        rejected_by: rules.iter().take(8).map(|r| clean(r, 60)).collect(),
        why_pending: sentences.of(pod),
        gated,
        scheduler: clean(scheduler, MAX_NAME_CHARS),
    }
}

fn render(view: &View, request: &PageRequest, now: Timestamp) -> Markup {
    let only_waiting = view.rounds.is_none() && view.problem.is_none();
    let filtered = request.has_any(&["namespace", "q", "reason"]);
    html! {
        (form(request, only_waiting))
        @if !only_waiting {
            h2 { "Without a node" }
        }
        @if view.waiting.rows.is_empty() && request.console.lacks(&[lists::PODS]) { (not_known()) }
        @else { (waiting_table(view, filtered)) }
        @if only_waiting {
            (view.waiting.pager(request, ""))
            p { a href="/decisions" { "All decisions" } }
        } @else if view.waiting_total > view.waiting.rows.len() {
            p { a href=(request.link("view", Some("waiting"))) { "All " (view.waiting_total) " pods" } }
        }
        @if let Some(problem) = &view.problem {
            h2 { "Last rounds" }
            p .error { (problem) }
        }
        @if let Some(rounds) = &view.rounds {
            h2 { "Last rounds" }
            (rounds_table(rounds, now))
            (rounds.pager(request, ""))
        }
    }
}

fn form(request: &PageRequest, only_waiting: bool) -> Markup {
    let verdicts = [
        ("", "any"),
        ("usable", "a node is usable"),
        ("none", "no node"),
    ];
    let verdict = request.field("verdict").unwrap_or_default();
    let fields = html! {
        @if only_waiting { (form::hidden("view", "waiting")) }
        (form::text("Namespace", "namespace", request.field("namespace")))
        (form::search("Pod, or a part of its name", "q", request.field("q")))
        @if only_waiting {
            (form::text("Rule, gated or other", "reason", request.field("reason")))
        } @else {
            (form::choice("Verdict", "verdict", verdict, verdicts))
        }
    };
    form::filter("filter", "/decisions", &fields)
}

fn waiting_table(view: &View, filtered: bool) -> Markup {
    html! {
        @if view.waiting.rows.is_empty() {
            p .note { @if filtered { "No pod without a node matches the filter." } @else { "Every pod has a node." } }
        } @else {
            (table(("Pods without a node", ""), &view.waiting.rows, &[
                name("Pod", &|pod| pod_link(&pod.namespace, &pod.pod)),
                column("text", "Waits because of", &|pod| html! {
                    @for rule in &pod.rejected_by { (state("near", rule)) " " }
                    @if let Some(why) = &pod.why_pending { (why) }
                    @else if pod.rejected_by.is_empty() {
                        @if pod.gated { (state("none", "scheduling gates")) }
                        @else { span .dim { "kube-scheduler's own rules, or not tried yet" } }
                    }
                }),
                text("Scheduler", &|pod| html! { (pod.scheduler) }),
            ]))
        }
    }
}

fn pod_link(namespace: &str, pod: &str) -> Markup {
    html! {
        a href=(links::pod(namespace, pod)) { (clean(namespace, MAX_NAME_CHARS)) "/" wbr; (clean(pod, MAX_NAME_CHARS)) }
    }
}

fn rounds_table(rounds: &Window<Summary>, now: Timestamp) -> Markup {
    html! {
        @if rounds.rows.is_empty() {
            p .note {
                "No round matches, or none is known. A round is planned when kube-scheduler calls the extender for a \
                 pod that an offer selects; the extender forgets the oldest ("
                code { "--explain-memory" } "). " code { "tautline doctor" } " finds out why none is called."
            }
        } @else {
            (table(("Last rounds", "wide"), &rounds.rows, &[
                name("Pod", &|round| pod_link(&round.namespace, &round.pod)),
                text("Verdict", &|round| match (round.usable, &round.reason) {
                    (0, reason) => state("bad", reason.as_deref().unwrap_or("no node")),
                    _ => state("good", "placeable"),
                }),
                number("Usable nodes", &|round| html! { (round.usable) " of " (round.nodes) }),
                text("Offered to kube-scheduler", &|round| html! {
                    (round.offered_nodes.join(", "))
                    @if round.offered > round.offered_nodes.len() {
                        " and " (round.offered - round.offered_nodes.len()) " more"
                    }
                }),
                number("Took", &|round| html! { (draw::micros(round.took_micros)) }),
                text("When", &|round| draw::ago(draw::of_millis(round.at_unix_millis), now)),
            ]))
        }
    }
}

#[cfg(test)]
mod tests;
