use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};

use super::{
    Overview, Part,
    agents::Agents,
    bindings::Bindings,
    feed::{Entry, Feed},
    gpu::Gpu,
    providers::{Extender, Provider},
    waiting::Waiting,
};
use crate::{
    console::lists,
    draw::{self, cards_of},
    pages::bindings::tone,
    request, when,
};

pub(super) fn page(view: &Overview, now: Timestamp) -> Markup {
    html! {
        @if view.offers == 0 && !view.lacks(&[lists::OFFERS]) { (no_offer(view.of_manifests)) }
        div .tiles {
            @if view.lacks(&[lists::BINDINGS]) { (unknown("Bindings", "/bindings")) }
            @else { (compliance(&view.bindings)) }
            @if view.lacks(&[lists::PODS]) { (unknown("Pods without a node", "/decisions?view=waiting")) }
            @else { (waiting(&view.waiting)) }
            (scheduler(&view.extender, view.of_manifests, now))
            @if view.lacks(&[lists::NODES, lists::PODS]) { (unknown("GPU", "/gpu")) }
            @else { (gpu(&view.gpu)) }
            (agents(&view.agents))
            (counts(view))
        }
        (providers(&view.extender, now))
        (feed(&view.feed, now))
    }
}

fn no_offer(of_manifests: bool) -> Markup {
    if of_manifests {
        return html! {
            p .note {
                "The manifests have no ConstraintPolicyOffer, so no pod is governed. One selects pods and names policies: "
                code { "examples/edge-inference" } " has some."
            }
        };
    }
    html! {
        p .note {
            "No offer exists yet, so Tautline affects no pod. An offer selects pods and names policies: "
            code { "kubectl apply -f examples/near-server" } " makes the first one; docs/tutorial.md explains it."
        }
    }
}

fn tile(title: &str, link: &str, content: &Markup) -> Markup {
    html! {
        section .tile {
            h2 { a href=(link) { (title) } }
            (content)
        }
    }
}

fn unknown(title: &str, link: &str) -> Markup {
    tile(title, link, &html! { p .figure { "unknown" } })
}

fn failed(error: &str) -> Markup {
    html! { p .error { (error) } }
}

fn compliance(bindings: &Bindings) -> Markup {
    let states = &bindings.states;
    let parts = states
        .iter()
        .map(|s| (tone(s.compliance), s.compliance.name(), s.count as u64));
    let filter =
        |name: &str| request::link("/bindings", &[("compliance".into(), name.into())].into());
    tile(
        "Bindings",
        "/bindings",
        &html! {
            p .figure { (bindings.total) }
            @if bindings.total == 0 {
                p .dim { "The controller makes a binding for each pod with a node that an offer selects." }
            } @else {
                (draw::share("Bindings", parts))
                ul .counts {
                    @for s in states.iter().filter(|s| s.count > 0) {
                        li {
                            a href=(filter(s.compliance.name())) {
                                span class={ "state " (tone(s.compliance)) } { (s.compliance.name()) }
                                " " b { (s.count) }
                            }
                        }
                    }
                }
            }
        },
    )
}

fn waiting(waiting: &Waiting) -> Markup {
    let link = |reason: &str| {
        let fields = [("view", "waiting"), ("reason", reason)];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        request::link("/decisions", &fields.into())
    };
    let rest = [
        ("gated", "with scheduling gates", waiting.gated),
        ("other", "other reasons, or not tried yet", waiting.other),
    ];
    tile(
        "Pods without a node",
        "/decisions?view=waiting",
        &html! {
            p .figure { (waiting.total) }
            @if waiting.total == 0 {
                p .dim { "Every pod has a node." }
            } @else {
                ul .counts .lines {
                    @for r in waiting.rules.iter().take(8) {
                        li { a href=(link(&r.rule)) { "rule " (draw::clean(&r.rule, 60)) } " " b { (r.pods) } }
                    }
                    @for (reason, text, pods) in rest {
                        @if pods > 0 {
                            li { a href=(link(reason)) { (text) } " " b { (pods) } }
                        }
                    }
                }
            }
        },
    )
}

fn scheduler(extender: &Part<Extender>, of_manifests: bool, now: Timestamp) -> Markup {
    let content = match extender {
        Part::Failed { error } => failed(error),
        Part::Known(extender) => {
            let last = extender.last_request.as_ref();
            let at = |seconds| Timestamp::from_second(seconds).unwrap_or_default();
            html! {
                @match last {
                    Some(last) => p .figure { (when::ago(at(last.at_unix_seconds), now)) },
                    None => p .figure { "never" },
                }
                @match last {
                    Some(last) => p .dim { "the last call, of the verb " (draw::clean(&last.verb, 20)) },
                    None if of_manifests => p .dim { "No pod of the manifests waits for a node." },
                    None => p .dim {
                        "No replica has been called since it started: pods may not be governed, or kube-scheduler \
                         is not configured with the extender. " code { "tautline doctor" } " says which."
                    },
                }
                p .dim {
                    (extender.replicas) " replica" (if extender.replicas == 1 { "" } else { "s" })
                    " of the extender; answer " (draw::clean(&extender.answers.join(", "), 60))
                }
            }
        }
    };
    tile("kube-scheduler", "/decisions", &content)
}

fn gpu(gpu: &Part<Gpu>) -> Markup {
    let content = match gpu {
        Part::Failed { error } => failed(error),
        Part::Known(gpu) if gpu.cards == 0 && gpu.counted_units == 0 => html! {
            p .figure { "none" }
            p .dim { "No node reports GPUs. Cards show once an agent or a device plugin runs: docs/howto/gpu-sharing.md." }
        },
        Part::Known(gpu) => html! {
            @if gpu.cards > 0 { (cards(gpu)) }
            @if gpu.counted_units > 0 {
                p .dim {
                    (gpu.counted_used_units) " of " (gpu.counted_units)
                    " GPUs used of which only the number is known"
                }
            }
        },
    };
    tile("GPU", "/gpu", &content)
}

fn cards(gpu: &Gpu) -> Markup {
    let useless = gpu
        .useless_milli
        .unwrap_or(0)
        .clamp(0, gpu.idle_milli.max(0));
    let amounts = [
        ("u-used", "given to pods", gpu.held_milli),
        ("u-idle", "idle", gpu.idle_milli - useless),
        (
            "u-useless",
            "idle, but useless to the next request",
            useless,
        ),
    ];
    let part = |(class, label, milli): (&'static str, &'static str, i64)| {
        (class, label, u64::try_from(milli).unwrap_or(0))
    };
    html! {
        p .figure { (cards_of(gpu.held_milli)) " of " (gpu.cards) " cards" }
        (draw::share("Thousandths of cards", amounts.map(part).into_iter()))
        ul .counts .lines {
            @for (class, label, milli) in amounts {
                li { (draw::key(class)) " " (label) " " b { (cards_of(milli)) } }
            }
        }
        @if gpu.useless_milli.is_none() {
            p .dim { "Useless parts are not known before a pod has requested a card." }
        }
        @if gpu.unhealthy_cards > 0 {
            p { span .state.bad { (gpu.unhealthy_cards) " unhealthy" } }
        }
    }
}

fn agents(agents: &Part<Agents>) -> Markup {
    let content = match agents {
        Part::Failed { error } => html! {
            p .figure { "unknown" }
            p .dim { "The latency provider did not answer, or is not installed (docs/latency.md):" }
            (failed(error))
        },
        Part::Known(Agents { agents: None, .. }) => html! {
            p .figure { "none" }
            p .dim { "Manifests have no agents: delays come from their tables." }
        },
        Part::Known(Agents {
            agents: Some(agents),
            nodes,
        }) => {
            let without = (*nodes as u64).saturating_sub(*agents);
            html! {
                p .figure { (agents) " of " (nodes) " nodes" }
                (draw::share("Nodes", [("u-used", "with an agent", *agents), ("u-idle", "without", without)].into_iter()))
                p .dim {
                    @if without == 0 { "Every node has an agent." }
                    @else { (without) " without: their delays are predicted, or unknown." }
                }
            }
        }
    };
    tile("Latency agents", "/latency", &content)
}

fn counts(view: &Overview) -> Markup {
    let count = |list, count: usize| match view.lacks(&[list]) {
        true => "unknown".to_owned(),
        false => count.to_string(),
    };
    tile(
        "Cluster",
        "/policies",
        &html! {
            p .figure { (count(lists::NODES, view.nodes)) " nodes" }
            ul .counts .lines {
                li { "pods " b { (count(lists::PODS, view.pods)) } }
                li { a href="/policies" { "offers" } " " b { (count(lists::OFFERS, view.offers)) } }
                li { a href="/policies?list=policies" { "policies" } " " b { (count(lists::POLICIES, view.policies)) } }
            }
        },
    )
}

/// Rows of providers; the policies' page has all.
const PROVIDERS: usize = 40;

fn providers(extender: &Part<Extender>, now: Timestamp) -> Markup {
    let Part::Known(extender) = extender else {
        return html! {};
    };
    let all = &extender.providers;
    html! {
        h2 { "Providers" }
        @if all.is_empty() {
            p .note { "No policy has a rule, so no provider is needed." }
        } @else {
            div .scroll tabindex="0" role="region" aria-label="Providers" {
                table .wide {
                    thead { tr {
                        th scope="col" { "Rule" }
                        th scope="col" { "Service" }
                        th scope="col" { "State" }
                        th .number scope="col" { "Last call took" }
                        th .number scope="col" { "Deadline" }
                        th scope="col" { "When" }
                        th scope="col" { "Error" }
                    } }
                    tbody { @for provider in all.iter().take(PROVIDERS) { (row(provider, now)) } }
                }
            }
            @if all.len() > PROVIDERS {
                p { a href="/policies" { (all.len() - PROVIDERS) " more" } }
            }
        }
    }
}

fn row(provider: &Provider, now: Timestamp) -> Markup {
    let (class, state) = state(provider);
    let call = provider.last_call.as_ref();
    let error = call.and_then(|c| c.error.as_deref()).unwrap_or_default();
    html! {
        tr {
            th scope="row" { (draw::clean(&provider.rule, 60)) }
            td { @match &provider.service {
                Some(service) => (draw::clean(service, 120)),
                None => {
                    "none; label one: "
                    code { "kubectl label service NAME constraint.ciena.com/constraint-" (draw::clean(&provider.rule, 60)) "=enabled" }
                }
            } }
            td { span class={ "state " (class) } { (state) } }
            td .number { @if let Some(call) = call { (when::micros(call.took_micros)) } }
            td .number { @if let Some(call) = call { (when::micros(call.deadline_micros)) } }
            td { @if let Some(call) = call { (when::ago(when::of_millis(call.at_unix_millis), now)) } }
            td .text { (error) }
        }
    }
}

fn state(provider: &Provider) -> (&'static str, String) {
    let Provider {
        service,
        addresses,
        open_breakers,
        last_call,
        ..
    } = provider;
    match (service, addresses, last_call) {
        (None, ..) => ("bad", "no Service".into()),
        (_, 0, _) => ("bad", "no ready address".into()),
        _ if !open_breakers.is_empty() => (
            "bad",
            format!("breaker open at {} of {addresses}", open_breakers.len()),
        ),
        (.., None) => ("none", "not called yet".into()),
        (.., Some(call)) if call.outcome == "OK" => ("good", "answers".into()),
        (.., Some(call)) => ("bad", draw::clean(&call.outcome, 40)),
    }
}

fn feed(feed: &Feed, now: Timestamp) -> Markup {
    html! {
        h2 { "Last changes" }
        @for problem in &feed.problems { (failed(problem)) }
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
            span .dim { (when::ago(entry.at, now)) }
            span class={ "state " (entry.class) } { (kind) }
            span { a href=(entry.link) { (draw::clean(&entry.object, 130)) } " " (entry.text) }
        }
    }
}
