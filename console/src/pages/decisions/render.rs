mod matrix;
mod rules;

use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use tautline_scheduler_extender::explain::UnderlayRecord;

use super::{
    pod::{Kubernetes, Tab, View},
    pod_state::PodState,
    round::{Answer, Reason, Round},
    what_if,
    why_not::WhyNot,
};
use crate::{
    console::lists,
    draw::{self, clean, joined},
    form,
    pages::{gpu, policies},
    request::{self, PageRequest},
    table::{Number, Text, styled_table},
};

pub(super) fn page(view: &View, request: &PageRequest, now: Timestamp) -> Markup {
    html! {
        (state(&view.state, &view.namespace, request))
        @for problem in &view.problems {
            p .error { "The extender's records cannot be read: " (problem) }
        }
        @if let Some(unknown) = &view.unknown { p .note { (unknown) } }
        @if let Some(kubernetes) = &view.kubernetes { (kubernetes_only(kubernetes)) }
        @if let Some(round) = &view.round {
            (tabs(&view.rounds, request, now))
            @if view.forgotten {
                p .note { "The extender has forgotten the round of this address; this is the newest." }
            }
            (summary(round))
            (rules::section(round, request, &view.namespace))
            (reasons(&round.reasons))
            (why_not(round.why_not.as_ref(), request))
            @if let Some(part) = &round.underlay { (underlay(part)) }
            @if round.usable > 0 { (what_if::section(&round.what_if, request)) }
            (matrix::section(round, request))
        }
    }
}

fn state(state: &PodState, namespace: &str, request: &PageRequest) -> Markup {
    let offer = |name: &String| html! { a href=(policies::offer_link(namespace, name)) { (clean(name, 120)) } };
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
        a href=(gpu::link(node)) { "GPU" } ", "
        a href=(request::link("/latency", [("node", node)])) { "latency" }
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

fn tabs(rounds: &[Tab], request: &PageRequest, now: Timestamp) -> Markup {
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

fn answer(answer: &Answer, usable: usize) -> String {
    let all = answer.nodes.len() + answer.more;
    let tied = answer.tied;
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
            (styled_table(
                "Offers of the underlay",
                "",
                [Text("Node"), Text("Offer"), Number("Cost"), Text("Verdict")],
                &html! {
                    @for offer in &underlay.offers {
                        tr {
                            th scope="row" { (offer.node) }
                            td { (offer.id) }
                            td .number { (offer.cost) }
                            td { @match &offer.refused {
                                Some(refused) => span .state.bad { (refused) },
                                None => span .state.good { "accepted" },
                            } }
                        }
                    }
                },
            ))
        }
        @if underlay.left_out > 0 { p .dim { "and " (underlay.left_out) " more offers" } }
    }
}
