//! Merges the status of the extender's replicas for the overview page, and renders its table of
//! rule providers.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;
use tautline_scheduler_extender::status::{CallStatus, LastRequest, ProviderStatus, Status};

use super::counts::Part;
use crate::{
    draw,
    table::{column, name, number, table, text},
};

/// The maximum number of rows of providers; the page of policies has all.
const MAX_PROVIDERS: usize = 40;

/// The merged status of the extender's replicas.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Extender {
    pub replicas: usize,
    /// The modes of answers: `ties`, `decisive` or `shortlist`; several if the replicas differ.
    pub answers: Vec<String>,
    /// The last request of kube-scheduler to any replica.
    pub last_request: Option<LastRequest>,
    /// The providers, those with a fault first, then by rule and Service.
    pub providers: Vec<Provider>,
}

/// A rule and a Service that answers it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Provider {
    pub rule: String,
    /// The `namespace/name` of the Service; absent if no Service has the rule's label.
    pub service: Option<String>,
    pub addresses: usize,
    /// The addresses that some replica does not call, because they have failed repeatedly.
    pub open_breakers: Vec<String>,
    /// The newest call by any replica.
    pub last_call: Option<CallStatus>,
}

impl Provider {
    pub fn is_faulty(&self) -> bool {
        let failed = self.last_call.as_ref().is_some_and(|c| c.outcome != "OK");
        self.service.is_none() || self.addresses == 0 || !self.open_breakers.is_empty() || failed
    }

    fn add(&mut self, status: &ProviderStatus) {
        self.addresses = self.addresses.max(status.addresses.len());
        let open = status.addresses.iter().filter(|a| a.breaker_open);
        self.open_breakers.extend(open.map(|a| a.address.clone()));
        self.open_breakers.sort_unstable();
        self.open_breakers.dedup();
        let at = |call: &Option<CallStatus>| call.as_ref().map(|c| c.at_unix_millis);
        if at(&status.last_call) > at(&self.last_call) {
            self.last_call.clone_from(&status.last_call);
        }
    }
}

impl Extender {
    pub fn new(replicas: &[Status]) -> Self {
        let mut answers: Vec<String> = replicas.iter().map(|s| s.answer.clone()).collect();
        answers.sort();
        answers.dedup();
        let requests = replicas.iter().flat_map(|s| &s.requests);
        let last_request = requests.max_by_key(|r| r.at_unix_seconds).cloned();
        let mut merged: BTreeMap<(&str, Option<&str>), Provider> = BTreeMap::new();
        for status in replicas.iter().flat_map(|s| &s.providers) {
            let key = (&*status.rule, status.service.as_deref());
            let provider = merged.entry(key).or_insert_with(|| Provider {
                rule: status.rule.clone(),
                service: status.service.clone(),
                ..Provider::default()
            });
            provider.add(status);
        }
        let mut providers: Vec<Provider> = merged.into_values().collect();
        providers.sort_by_key(|p| !p.is_faulty());
        Self {
            replicas: replicas.len(),
            answers,
            last_request,
            providers,
        }
    }
}

pub(super) fn render(extender: &Part<Extender>, now: Timestamp) -> Markup {
    let Part::Known(extender) = extender else {
        return html! {};
    };
    let all = &extender.providers;
    html! {
        h2 #providers { "Providers" }
        @if all.is_empty() {
            p .note { "No policy has a rule, so no provider is needed." }
        } @else {
            (table(("Providers", "wide"), &all[..all.len().min(MAX_PROVIDERS)], &[
                name("Rule", &|provider| html! { (provider.rule) }),
                text("Service", &|provider| html! {
                    @match &provider.service {
                        Some(service) => (service),
                        None => {
                            "none; label one: "
                            code { "kubectl label service NAME constraint.ciena.com/constraint-" (provider.rule) "=enabled" }
                        }
                    }
                }),
                text("State", &badge),
                number("Last call took", &|provider| of_call(provider, &|call| html! { (draw::micros(call.took_micros)) })),
                number("Deadline", &|provider| of_call(provider, &|call| html! { (draw::micros(call.deadline_micros)) })),
                text("When", &|provider| of_call(provider, &|call| draw::ago(draw::of_millis(call.at_unix_millis), now))),
                column("text", "Error", &|provider| of_call(provider, &|call| html! { (call.error.as_deref().unwrap_or_default()) })),
            ]))
            @if all.len() > MAX_PROVIDERS {
                p { a href="/policies" { (all.len() - MAX_PROVIDERS) " more" } }
            }
        }
    }
}

/// Renders the state of a provider with its colour.
pub(super) fn badge(provider: &Provider) -> Markup {
    let (tone, text) = state(provider);
    draw::state(tone, &text)
}

/// Renders a part of the last call, if there was one.
fn of_call(provider: &Provider, part: &dyn Fn(&CallStatus) -> Markup) -> Markup {
    provider.last_call.as_ref().map_or_else(|| html! {}, part)
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
        (.., Some(call)) => ("bad", call.outcome.to_string()),
    }
}
