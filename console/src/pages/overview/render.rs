mod tiles;

use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};

use super::{
    Overview, Part,
    feed::{Entry, Feed},
    providers::{Extender, Provider},
};
use crate::{
    console::lists,
    draw,
    table::{Number, Text, styled_table},
    when,
};

pub(super) fn page(view: &Overview, now: Timestamp) -> Markup {
    html! {
        @if view.offers == 0 && !view.lacks(&[lists::OFFERS]) { (no_offer(view.of_manifests)) }
        (tiles::section(view, now))
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

fn failed(error: &str) -> Markup {
    html! { p .error { (error) } }
}

/// The maximum number of rows of providers; the page of policies has all.
const MAX_PROVIDERS: usize = 40;

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
            (styled_table(
                "Providers",
                "wide",
                [Text("Rule"), Text("Service"), Text("State"), Number("Last call took"), Number("Deadline"), Text("When"),
                    Text("Error")],
                &html! { @for provider in all.iter().take(MAX_PROVIDERS) { (row(provider, now)) } },
            ))
            @if all.len() > MAX_PROVIDERS {
                p { a href="/policies" { (all.len() - MAX_PROVIDERS) " more" } }
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
            th scope="row" { (provider.rule) }
            td { @match &provider.service {
                Some(service) => (service),
                None => {
                    "none; label one: "
                    code { "kubectl label service NAME constraint.ciena.com/constraint-" (provider.rule) "=enabled" }
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
        (.., Some(call)) => ("bad", call.outcome.clone()),
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
