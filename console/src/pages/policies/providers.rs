//! The list of the Services that answer rules, and the namespaces for which they do.

use std::{collections::BTreeSet, sync::Arc};

use maud::{Markup, html};
use serde::Serialize;
use tautline_core::model::Service;

use super::rules::{LABEL, addresses, is_wanted};
use crate::{
    draw::{clean_text as clean, problems, state},
    request::{PageRequest, PageResult},
    table::{Window, name, number, table, text},
};

const MAX_ADDRESSES: usize = 3;

#[derive(Serialize)]
pub(super) struct View {
    /// The rules of policies that no Service answers in any namespace.
    unanswered: Vec<String>,
    providers: Window<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    rule: String,
    namespace: String,
    name: String,
    for_all_namespaces: bool,
    priority: i64,
    is_allocator: bool,
    tls_required: bool,
    addresses: Vec<String>,
    address_count: usize,
}

pub(super) fn view(request: &PageRequest) -> PageResult<View> {
    let console = &request.console;
    let snapshot = console.store.snapshot();
    let policies = snapshot.policies();
    let rules: BTreeSet<&str> = policies.flat_map(|p| &p.rules).map(|r| &*r.name).collect();
    let mut all: Vec<(&str, &Arc<Service>)> = Vec::new();
    for rule in &rules {
        let services = snapshot.providers(rule).iter();
        let shown = services.filter(|s| is_wanted(request, &s.namespace, &s.name));
        all.extend(shown.map(|service| (*rule, service)));
    }
    all.sort_by_key(|(rule, s)| (*rule, s.namespace.clone(), s.name.clone()));
    let unanswered = rules
        .iter()
        .filter(|rule| snapshot.providers(rule).is_empty());
    Ok(View {
        unanswered: unanswered.map(|rule| clean(rule)).collect(),
        providers: Window::new(request, &all, |(rule, service)| {
            let mut addresses = addresses(&snapshot, service);
            let address_count = addresses.len();
            addresses.truncate(MAX_ADDRESSES);
            Row {
                rule: clean(rule),
                namespace: service.namespace.to_string(),
                name: service.name.to_string(),
                for_all_namespaces: console.trusted.contains(&service.namespace),
                priority: service.priority,
                is_allocator: service.allocator,
                tls_required: service.tls_required,
                addresses,
                address_count,
            }
        })?,
    })
}

pub(super) fn render(view: &View, request: &PageRequest) -> Markup {
    let label =
        |rule| format!("rule {rule}: no Service answers it: label one {LABEL}{rule}=enabled");
    let unanswered: Vec<String> = view.unanswered.iter().map(label).collect();
    html! {
        p .dim {
            "A Service with the label " code { (LABEL) "RULE=enabled" } " answers a rule: one in the \
             pod's namespace first, then one in a trusted namespace, then by priority and age."
        }
        (problems(&unanswered))
        @if view.providers.rows.is_empty() {
            p .note {
                "No Service answers a rule of these policies. "
                code { "helm install" } " with " code { "providers.latency.enabled=true" }
                " adds the latency provider; docs/rule-providers.md shows how to write one."
            }
        } @else {
            (table(("", ""), &view.providers.rows, &[
                name("Rule", &|row| html! { (row.rule) }),
                text("Service", &|row| html! { (row.namespace) "/" wbr; (row.name) }),
                text("Counts for", &|row| html! {
                    @if row.for_all_namespaces { "all namespaces" } @else { "namespace " (row.namespace) }
                }),
                text("Addresses", &|row| html! {
                    @if row.addresses.is_empty() { (state("bad", "no ready endpoint")) }
                    (row.addresses.join(", "))
                    @if row.address_count > row.addresses.len() {
                        " and " (row.address_count - row.addresses.len()) " more"
                    }
                }),
                number("Priority", &|row| html! { (row.priority) }),
                text("Allocator", &|row| html! { (if row.is_allocator { "yes" } else { "no" }) }),
                text("TLS", &|row| html! { (if row.tls_required { "required" } else { "no" }) }),
            ]))
            (view.providers.pager(request, ""))
        }
    }
}
