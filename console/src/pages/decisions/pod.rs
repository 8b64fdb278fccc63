//! `/decisions/NAMESPACE/POD` shows one pod: its rounds, and the nodes for it.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;
use tautline_core::{Snapshot, pending};
use tautline_scheduler_extender::explain::{AnswerRecord, PodNow, Record, UnderlayRecord};
use tokio::time::{Duration, timeout};

use super::{
    matrix_table,
    pod_state::{Excluded, PodState, excluded, unbound},
    round::{self, Reason, Round},
    what_if,
    why_not::WhyNot,
};
use crate::{
    admin::{self, Rounds},
    console::{lists, quote},
    draw::{self, clean, joined, or_problem},
    form, links,
    request::{PageRequest, PageResult},
    table::{name, number, table, text},
};

const DEADLINE: Duration = Duration::from_secs(3);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    namespace: String,
    pod: String,
    state: PodState,
    /// The reason why the pod waits, as a sentence; absent if it does not, or if it is not known.
    why_pending: Option<String>,
    /// The reason why no round is known.
    unknown: Option<String>,
    /// True if the round in the address is not known any more, so that the newest is shown.
    forgotten: bool,
    /// The errors of servers that did not answer.
    problems: Vec<String>,
    /// The rounds of the pod, the newest first.
    rounds: Vec<Tab>,
    round: Option<Round>,
    /// The nodes that Kubernetes' own rules admit and exclude; absent if a round is shown.
    kubernetes: Option<Kubernetes>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tab {
    at_unix_millis: u64,
    usable: usize,
    took_micros: u64,
    shown: bool,
    /// True if the round was for an earlier pod of the same name.
    other_pod: bool,
}

#[derive(Debug, Serialize)]
struct Kubernetes {
    nodes: usize,
    admitted: usize,
    reasons: Vec<Reason>,
}

pub(in super::super) async fn page(
    request: &PageRequest,
    namespace: &str,
    pod: &str,
) -> PageResult {
    let now = Timestamp::now();
    let view = view(request, namespace, pod).await?;
    let name = format!("{namespace}/{pod}");
    let title = clean(&format!("Pod {name}"), 300);
    let command = clean(&format!("explain {}", quote(&name)), 600);
    request.respond(&title, &command, &view, |view| render(view, request, now))
}

async fn view(request: &PageRequest, namespace: &str, pod: &str) -> PageResult<View> {
    let at = request.number::<u64>("at")?;
    let source = &*request.console.source;
    let read = async {
        let read = timeout(DEADLINE, source.pod(namespace, pod)).await;
        read.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {DEADLINE:?}")))
    };
    let (rounds, read) = tokio::join!(admin::rounds(source, namespace, pod, at), read);
    let snapshot = request.console.store.snapshot();
    let state = PodState::new(&read, &snapshot);
    let mut problems = Vec::new();
    let Rounds { records, unknown } = or_problem(rounds, "", &mut problems);
    let chosen = records.iter().position(|r| Some(r.at_unix_millis) == at);
    let record = records.get(chosen.unwrap_or_default());
    let asked = record.into_iter().flat_map(|r| &r.nodes);
    let asked = asked.map(|n| n.node.clone());
    let known = match read {
        Ok(Some(pod)) => Some(unbound(pod)),
        // The index does not keep the constraints of a pod with a node.
        _ => {
            let pod = snapshot.pod(namespace, pod).filter(|p| p.node.is_none());
            pod.map(|pod| (**pod).clone())
        }
    };
    let has_pod = known.is_some();
    let excluded = excluded(&snapshot, known, asked.collect::<HashSet<_>>()).await?;
    let node = node(&state, record);
    let waits = state.exists && state.node.is_none() && state.scheduling_gates.is_empty();
    let why_pending = match record {
        Some(record) if record.uid == state.uid => record.why_pending.clone(),
        Some(_) => None,
        None if excluded.is_empty() => None,
        None => {
            let reasons = excluded.iter().filter_map(|e| e.reason.as_deref());
            pending::by_kubernetes(excluded.len(), reasons)
        }
    };
    let round = record.map(|r| Round::new(request, r, &excluded, node.as_deref()));
    Ok(View {
        unknown: unknown.filter(|_| records.is_empty() && !says_why(&state)),
        forgotten: at.is_some() && chosen.is_none() && record.is_some(),
        rounds: tabs(&records, record, &state),
        kubernetes: (record.is_none() && has_pod).then(|| kubernetes(&snapshot, &excluded)),
        round: round.transpose()?,
        why_pending: why_pending.filter(|_| waits),
        state,
        problems,
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
    })
}

/// Returns whether the pod's state explains why it has no round: it has scheduling gates, or no
/// offer selects it.
fn says_why(state: &PodState) -> bool {
    state.exists && (!state.scheduling_gates.is_empty() || state.offers.is_empty())
}

/// Returns the pod's node, if the record is of this pod and not of an earlier one.
fn node(state: &PodState, record: Option<&Record>) -> Option<String> {
    let record = record?;
    if state.exists {
        return state.node.clone().filter(|_| state.uid == record.uid);
    }
    match &record.pod_now {
        Some(PodNow::Bound { node }) => Some(node.clone()),
        _ => None,
    }
}

fn tabs(records: &[Record], shown: Option<&Record>, state: &PodState) -> Vec<Tab> {
    let shown = shown.map(|r| r.at_unix_millis);
    let tab = |record: &Record| Tab {
        at_unix_millis: record.at_unix_millis,
        usable: record.usable,
        took_micros: record.took_micros,
        shown: shown == Some(record.at_unix_millis),
        other_pod: state.exists && state.uid != record.uid,
    };
    records.iter().map(tab).collect()
}

fn kubernetes(snapshot: &Arc<Snapshot>, excluded: &[Excluded]) -> Kubernetes {
    let reasons = excluded.iter().filter_map(|e| e.reason.as_deref());
    Kubernetes {
        nodes: snapshot.node_count(),
        admitted: excluded.iter().filter(|e| e.reason.is_none()).count(),
        reasons: Reason::count(reasons.map(|reason| (true, reason))),
    }
}

fn render(view: &View, request: &PageRequest, now: Timestamp) -> Markup {
    html! {
        (state(&view.state, &view.namespace, request))
        @if let Some(why) = &view.why_pending { p .lead { (why) } }
        @for problem in &view.problems {
            p .error { "The extender's records cannot be read: " (problem) }
        }
        @if let Some(unknown) = &view.unknown { p .note { (unknown) } }
        @if let Some(kubernetes) = &view.kubernetes { (kubernetes_only(kubernetes)) }
        @if let Some(round) = &view.round {
            (round_tabs(&view.rounds, request, now))
            @if view.forgotten {
                p .note { "The extender has forgotten the round of this address; this is the newest." }
            }
            (summary(round))
            (round::rules(round, request, &view.namespace))
            (reasons(&round.reasons))
            (why_not(round.why_not.as_ref(), request))
            @if let Some(part) = &round.underlay { (underlay(part)) }
            @if round.usable > 0 { (what_if::section(&round.what_if, request)) }
            (matrix_table::section(round, request))
        }
    }
}

fn state(state: &PodState, namespace: &str, request: &PageRequest) -> Markup {
    let offer =
        |name: &String| html! { a href=(links::offer(namespace, name)) { (clean(name, 120)) } };
    html! {
        p {
            @match (&state.problem, &state.node) {
                (Some(problem), _) => span .error { "The pod cannot be read: " (problem) },
                (None, Some(node)) => { span .state.good { "on a node" } " " (node_links(node)) },
                (None, None) if state.exists => span .state.near { "without a node" },
                (None, None) => span .state.none { "no such pod now" },
            }
            @if !state.phase.is_empty() { " " span .dim { (state.phase) } }
            @if !state.scheduler.is_empty() { " " span .dim { "scheduled by " (state.scheduler) } }
        }
        @if state.exists {
            p {
                @if state.offers.is_empty() && request.console.lacks(&[lists::OFFERS]) {
                    "Whether an offer selects it is not known."
                } @else if state.offers.is_empty() {
                    "No offer selects it, so Tautline does not affect it."
                } @else {
                    "Governed by " (joined(state.offers.iter().map(offer))) "."
                }
            }
        }
        @if !state.scheduling_gates.is_empty() {
            p .note {
                "kube-scheduler does not look at it before its scheduling gates are removed: "
                (state.scheduling_gates.join(", "))
            }
        }
        @if let Some(message) = state.message.as_ref().filter(|_| state.node.is_none()) {
            p .note { "kube-scheduler says: " (message) }
        }
    }
}

/// Renders the node's name with links to its pages.
fn node_links(node: &str) -> Markup {
    html! {
        b { (clean(node, 260)) } " ("
        a href=(links::gpus(node)) { "GPU" } ", "
        a href=(links::latency(node)) { "latency" }
        ")"
    }
}

fn kubernetes_only(kubernetes: &Kubernetes) -> Markup {
    html! {
        h2 { "Nodes by Kubernetes' own rules, now" }
        p { (kubernetes.admitted) " of " (kubernetes.nodes) " nodes admit the pod." }
        (reasons(&kubernetes.reasons))
    }
}

fn round_tabs(rounds: &[Tab], request: &PageRequest, now: Timestamp) -> Markup {
    html! {
        nav .tabs aria-label="Rounds of the pod" {
            @for tab in rounds {
                @let at = tab.at_unix_millis.to_string();
                a href=(request.link("at", Some(&at))) aria-current=[tab.shown.then_some("true")] {
                    (draw::ago(draw::of_millis(tab.at_unix_millis), now)) ": " (tab.usable) " usable"
                    @if tab.other_pod { " (an earlier pod of this name)" }
                }
            }
        }
    }
}

fn summary(round: &Round) -> Markup {
    html! {
        p {
            b { (round.usable) " of " (round.asked) " nodes usable" }
            ", planned in " (draw::micros(round.took_micros)) ". " (answer(&round.answer, round.usable))
        }
    }
}

fn answer(answer: &AnswerRecord, usable: usize) -> String {
    let (all, tied) = (answer.nodes.len(), answer.tied);
    match all {
        0 => String::new(),
        1 if tied <= 1 => format!(
            "Offered to kube-scheduler ({}): {}.",
            answer.mode, answer.nodes[0]
        ),
        1 => format!(
            "Offered to kube-scheduler ({}): {}, one of {tied} that tie for best.",
            answer.mode, answer.nodes[0]
        ),
        _ => format!(
            "Offered to kube-scheduler ({}): {all} of {usable} usable nodes, {tied} of which tie for best; \
             the scheduler's own scores choose.",
            answer.mode
        ),
    }
}

fn reasons(reasons: &[Reason]) -> Markup {
    html! {
        @if !reasons.is_empty() {
            ul .counts .lines {
                @for r in reasons {
                    li {
                        b { (r.nodes) " node" (if r.nodes == 1 { "" } else { "s" }) } " "
                        @if r.by_kubernetes { span .state.none { "Kubernetes" } } @else { span .state.bad { "rule" } }
                        " " (r.reason)
                    }
                }
            }
        }
    }
}

fn why_not(why_not: Option<&WhyNot>, request: &PageRequest) -> Markup {
    html! {
        h2 { "Why not this node?" }
        form #why .filter action={ (request.path) "#why" } {
            @for (name, value) in request.fields(|name| name != "node") { (form::hidden(name, value)) }
            label #why-node hx-preserve="true" {
                "Node" input name="node" value=(request.field("node").unwrap_or_default()) required;
            }
            button type="submit" { "Why not?" }
        }
        @if let Some(why_not) = why_not {
            p role="status" {
                (why_not.text)
                @if why_not.exists { " " (node_links(&why_not.node)) }
            }
        }
    }
}

fn underlay(underlay: &UnderlayRecord) -> Markup {
    html! {
        h2 { "Underlay" }
        p {
            "The rules left no node, so " (underlay.service) " was asked for a path to one of "
            (underlay.asked_nodes) " nodes: " b { (underlay.outcome) } " after " (draw::micros(underlay.took_micros)) "."
        }
        @if let Some(error) = &underlay.error { p .error { (error) } }
        @if !underlay.offers.is_empty() {
            (table(("Offers of the underlay", ""), &underlay.offers, &[
                name("Node", &|offer| html! { (offer.node) }),
                text("Offer", &|offer| html! { (offer.id) }),
                number("Cost", &|offer| html! { (offer.cost) }),
                text("Verdict", &|offer| match &offer.refused {
                    Some(refused) => draw::state("bad", refused),
                    None => draw::state("good", "accepted"),
                }),
            ]))
        }
        @if underlay.left_out > 0 { p .dim { "and " (underlay.left_out) " more offers" } }
    }
}
