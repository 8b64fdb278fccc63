//! The Services that answer rules, and the namespaces for which they do.

use std::{collections::BTreeSet, sync::Arc};

use maud::{Markup, html};
use serde::Serialize;
use tautline_core::{
    TrustedNamespaces,
    index::Snapshot,
    model::Service,
    providers::{self, PROVIDER_PORT},
};

use crate::{
    draw::{clean_text as clean, problems},
    request::{PageRequest, PageResult},
    table::{Number, Text, Window, table},
};

const MAX_ADDRESSES: usize = 3;
const LABEL: &str = "constraint.ciena.com/constraint-";

/// The provider of a rule for one namespace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Provider {
    /// The `namespace/name` of the provider's Service; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The reason why the Service does not answer or may be the wrong one, with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Provider {
    pub(super) fn new(
        snapshot: &Snapshot,
        trusted: &TrustedNamespaces,
        namespace: &str,
        rule: &str,
    ) -> Self {
        let Some(service) = providers::choose_provider(snapshot, rule, namespace, trusted) else {
            return Self {
                service: None,
                problem: Some(missing(snapshot, namespace, rule)),
            };
        };
        let other = providers::ambiguous_provider(snapshot, rule, namespace, trusted);
        let problem = match other {
            _ if addresses(snapshot, service).is_empty() => {
                Some("the Service has no ready endpoint".to_owned())
            }
            Some(other) => Some(format!(
                "Service {}/{} has the label, too: the older counts; remove one label",
                other.namespace, other.name
            )),
            None => None,
        };
        Self {
            service: Some(clean(&format!("{}/{}", service.namespace, service.name))),
            problem: problem.map(|p| clean(&p)),
        }
    }
}

fn missing(snapshot: &Snapshot, namespace: &str, rule: &str) -> String {
    let others = snapshot.providers(rule);
    let text = match others.first() {
        Some(other) => format!(
            "no Service answers it here: {}/{} is in an untrusted namespace and counts there only",
            other.namespace, other.name
        ),
        None => format!(
            "no Service answers it: label one {LABEL}{rule}=enabled, in {namespace} or in \
             Tautline's namespace"
        ),
    };
    clean(&text)
}

fn addresses(snapshot: &Snapshot, service: &Service) -> Vec<String> {
    let slices = snapshot.endpoint_slices(&service.namespace, &service.name);
    let all = providers::addresses(service, slices, PROVIDER_PORT);
    all.iter().map(ToString::to_string).collect()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
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
        let shown = services.filter(|s| super::is_wanted(request, &s.namespace, &s.name));
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
            (table(
                [Text("Rule"), Text("Service"), Text("Counts for"), Text("Addresses"), Number("Priority"),
                    Text("Allocator"), Text("TLS")],
                &html! { @for row in &view.providers.rows { (table_row(row)) } },
            ))
            (view.providers.pager(request, ""))
        }
    }
}

fn table_row(row: &Row) -> Markup {
    html! {
        tr {
            th scope="row" { (row.rule) }
            td { (row.namespace) "/" wbr; (row.name) }
            td {
                @if row.for_all_namespaces { "all namespaces" }
                @else { "namespace " (row.namespace) }
            }
            td {
                @if row.addresses.is_empty() { span .state.bad { "no ready endpoint" } }
                (row.addresses.join(", "))
                @if row.address_count > row.addresses.len() {
                    " and " (row.address_count - row.addresses.len()) " more"
                }
            }
            td .number { (row.priority) }
            td { (if row.is_allocator { "yes" } else { "no" }) }
            td { (if row.tls_required { "required" } else { "no" }) }
        }
    }
}
