use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use maud::{Markup, html};
use serde::Serialize;
use tautline_api::{
    ConstraintPolicyBinding,
    constraint::Compliance,
    display::{age, reference},
};

use super::{badge::badge, badge::tone, filter::Filter, link};
use crate::{
    console::lists,
    draw,
    list::Window,
    pages::policies,
    request::{PageError, PageRequest},
    table::{Number, Text, bare_table},
};

const MAX_REASON_CHARS: usize = 160;
const MAX_TARGETS: usize = 8;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View {
    /// The number of bindings for each compliance, the worst first. The filter's compliance is
    /// ignored.
    counts: Vec<Count>,
    /// The namespaces of all bindings.
    namespaces: Vec<String>,
    bindings: Window<Row>,
}

#[derive(Serialize)]
struct Count {
    compliance: Compliance,
    count: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    offer: String,
    compliance: Compliance,
    reason: String,
    targets: Vec<String>,
    /// The time of the last change of the compliance.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(skip)]
    age: String,
}

pub(super) fn view(
    request: &PageRequest,
    filter: &Filter,
    now: Timestamp,
) -> Result<View, PageError> {
    let all = request.console.bindings.list();
    let mut namespaces = BTreeSet::new();
    // All bindings are sorted by name, so those of each compliance are, too.
    let mut ranked: [Vec<&Arc<ConstraintPolicyBinding>>; 5] = Default::default();
    for binding in all.iter() {
        namespaces.extend(binding.metadata.namespace.as_deref());
        if filter.matches(binding) {
            ranked[binding.compliance().rank()].push(binding);
        }
    }
    let by_compliance = || Compliance::WORST_FIRST.into_iter().zip(&ranked);
    let counts = by_compliance().map(|(compliance, list)| Count {
        compliance,
        count: list.len(),
    });
    let shown = by_compliance().filter(|(compliance, _)| filter.matches_compliance(*compliance));
    let shown: Vec<_> = shown.flat_map(|(_, list)| list).collect();
    Ok(View {
        counts: counts.collect(),
        namespaces: namespaces.into_iter().map(str::to_owned).collect(),
        bindings: Window::new(request, &shown, |binding| row(binding, now))?,
    })
}

fn row(binding: &ConstraintPolicyBinding, now: Timestamp) -> Row {
    let namespace = binding.namespace().unwrap_or_default();
    let status = binding.status.as_ref();
    let since = status.and_then(|s| s.last_compliance_change_timestamp.as_ref());
    let reason = status.map_or("", |s| s.first_reason.as_str());
    let targets = binding.spec.targets.values().take(MAX_TARGETS);
    Row {
        name: binding.name_any(),
        offer: binding.spec.offer.clone(),
        compliance: binding.compliance(),
        reason: draw::clean(reason, MAX_REASON_CHARS),
        targets: targets
            .map(|t| draw::clean(&reference(t, &namespace), MAX_REASON_CHARS))
            .collect(),
        since: since.map(|t| t.0),
        age: age::since_time(since, now),
        namespace,
    }
}

pub(super) fn render(view: &View, filter: &Filter, request: &PageRequest) -> Markup {
    let namespaces: Vec<&str> = view.namespaces.iter().map(String::as_str).collect();
    let rows = &view.bindings.rows;
    html! {
        (bar(&view.counts, request))
        (filter.form(&namespaces))
        @if rows.is_empty() && request.console.lacks(&[lists::BINDINGS]) {
            (draw::not_known())
        } @else if rows.is_empty() {
            (empty(filter))
        } @else {
            div .scroll {
                (bare_table(
                    "bindings",
                    [Text("Compliance"), Text("Binding"), Text("Reason"), Text("Targets"), Text("Offer"), Number("For")],
                    &html! { @for row in rows { (table_row(row)) } },
                ))
            }
            (view.bindings.pager(request))
        }
    }
}

fn table_row(row: &Row) -> Markup {
    html! {
        tr {
            td { (badge(row.compliance)) }
            th scope="row" {
                a href=(link(&row.namespace, &row.name)) { (row.namespace) "/" wbr; (row.name) }
            }
            td .text { (row.reason) }
            td {
                @for (i, target) in row.targets.iter().enumerate() {
                    @if i > 0 { ", " }
                    (target)
                }
            }
            td { a href=(policies::offer_link(&row.namespace, &row.offer)) { (row.offer) } }
            td .number { (row.age) }
        }
    }
}

/// Renders the share of each compliance, as one bar and as links that filter by it.
fn bar(counts: &[Count], request: &PageRequest) -> Markup {
    let parts = counts
        .iter()
        .map(|c| (tone(c.compliance), c.compliance.name(), c.count as u64));
    html! {
        (draw::share("Bindings", parts))
        ul .counts {
            @for c in counts {
                @let chosen = request.field("compliance") == Some(c.compliance.name());
                @let next = (!chosen).then(|| c.compliance.name());
                li {
                    a href=(request.link("compliance", next)) aria-current=[chosen.then_some("true")] {
                        span class={ "state " (tone(c.compliance)) } { (c.compliance.name()) }
                        " " b { (c.count) }
                    }
                }
            }
        }
    }
}

fn empty(filter: &Filter) -> Markup {
    html! {
        @if filter.is_empty() {
            p .note {
                "There are no bindings. A ConstraintPolicyOffer makes one for each combination of \
                 the objects that its targets select; the controller must run. "
                a href="/policies" { "Offers and policies" }
                " shows what selects nothing; " code { "tautline doctor" } " checks the installation."
            }
        } @else {
            p .note { "No binding fits the filter. " a href="/bindings" { "Show all" } }
        }
    }
}
