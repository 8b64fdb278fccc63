//! `/bindings` lists every binding by offer, the worst first.

pub(super) mod detail;
mod timeline;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use maud::{Markup, html};
use serde::Serialize;
use tautline_api::{
    ConstraintPolicyBinding,
    constraint::Compliance,
    display::{age, reference},
};

use crate::{
    console::{lists, quote},
    draw::{self, Count, badge, counts},
    figures::{self, Measured},
    form, links,
    request::{PageRequest, PageResult},
    table::{Window, column, grouped, name, number, text},
};

const MAX_REASON_CHARS: usize = 160;
const MAX_TARGETS: usize = 8;

#[derive(Serialize)]
struct View {
    /// The number of bindings for each compliance, the worst first. The filter's compliance is
    /// ignored.
    counts: Vec<Count>,
    /// The namespaces of all bindings.
    namespaces: Vec<String>,
    bindings: Window<Row>,
}

/// A binding of a list.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub namespace: String,
    pub name: String,
    offer: String,
    pub compliance: Compliance,
    pub reason: String,
    #[serde(flatten)]
    pub measured: Option<Measured>,
    targets: Vec<String>,
    /// The time of the last change of the compliance.
    since: Option<Timestamp>,
    #[serde(skip)]
    age: String,
}

/// The filter of the bindings to show, from the fields of the query.
struct Filter<'a> {
    namespace: Option<&'a str>,
    offer: Option<&'a str>,
    compliance: Option<Compliance>,
    /// The text to search for, in lower case.
    text: Option<String>,
}

impl<'a> Filter<'a> {
    fn new(request: &'a PageRequest) -> PageResult<Self> {
        let choices = Compliance::WORST_FIRST.map(|compliance| (compliance.name(), compliance));
        Ok(Self {
            namespace: request.field("namespace"),
            offer: request.field("offer"),
            compliance: request.choice("compliance", &choices)?,
            text: request.field("q").map(|q| q.trim().to_lowercase()),
        })
    }

    /// Returns whether a binding matches all fields except the compliance.
    fn matches(&self, binding: &ConstraintPolicyBinding) -> bool {
        let namespace = binding.metadata.namespace.as_deref();
        let text = self.text.as_ref();
        self.namespace
            .is_none_or(|wanted| namespace == Some(wanted))
            && self.offer.is_none_or(|offer| offer == binding.spec.offer)
            && text.is_none_or(|text| has_text(binding, text))
    }

    /// Returns the command that prints the same bindings. It does not search for the text.
    fn command(&self) -> String {
        let mut command = match self.namespace {
            Some(namespace) => format!("get bindings -n {}", quote(namespace)),
            None => "get bindings -A".to_owned(),
        };
        if let Some(offer) = self.offer {
            command += &format!(" --offer {}", quote(offer));
        }
        if let Some(compliance) = self.compliance {
            command += &format!(" --compliance {}", compliance.name().to_lowercase());
        }
        command
    }
}

/// Returns whether the binding's `namespace/name`, its reason or the name of a target contains
/// `text`, which is in lower case.
fn has_text(binding: &ConstraintPolicyBinding, text: &str) -> bool {
    let has = |field: &str| field.to_lowercase().contains(text);
    let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
    let mut status = binding.status.iter();
    let mut targets = binding.spec.targets.values();
    has(&format!("{namespace}/{}", binding.name_any()))
        || status.any(|status| has(&status.first_reason))
        || targets.any(|target| has(&target.name))
}

pub(super) fn page(request: &PageRequest) -> PageResult {
    let filter = Filter::new(request)?;
    let view = view(request, &filter, Timestamp::now())?;
    request.respond("Bindings", &filter.command(), &view, |view| {
        render(view, &filter, request)
    })
}

fn view(request: &PageRequest, filter: &Filter<'_>, now: Timestamp) -> PageResult<View> {
    let all = request.console.bindings.list();
    let mut namespaces = BTreeSet::new();
    let mut counts = [0; Compliance::WORST_FIRST.len()];
    let mut shown = Vec::new();
    for binding in all.iter() {
        namespaces.extend(binding.metadata.namespace.as_deref());
        if filter.matches(binding) {
            let compliance = binding.compliance();
            counts[compliance.rank()] += 1;
            if filter.compliance.is_none_or(|wanted| wanted == compliance) {
                shown.push(binding);
            }
        }
    }
    let shown = by_offer(shown);
    Ok(View {
        counts: Count::all(counts),
        namespaces: namespaces.into_iter().map(str::to_owned).collect(),
        bindings: Window::new(request, &shown, |binding| row(binding, now))?,
    })
}

/// Sorts bindings, which are sorted by name, by their offers, the offer with the worst binding
/// first, and those of an offer by their excess.
fn by_offer(bindings: Vec<&Arc<ConstraintPolicyBinding>>) -> Vec<&Arc<ConstraintPolicyBinding>> {
    let offer = |b: &ConstraintPolicyBinding| (b.namespace(), b.spec.offer.clone());
    let mut worst = HashMap::new();
    let keyed = bindings.into_iter().map(|binding| {
        let (offer, key) = (offer(binding), figures::worst_first(binding));
        let of_offer = worst.entry(offer.clone()).or_insert(key);
        *of_offer = key.min(*of_offer);
        (offer, key, binding)
    });
    let mut keyed: Vec<_> = keyed.collect();
    keyed.sort_by(|(a, a_key, _), (b, b_key, _)| {
        (worst.get(a), a, a_key).cmp(&(worst.get(b), b, b_key))
    });
    keyed.into_iter().map(|(.., binding)| binding).collect()
}

pub(super) fn row(binding: &ConstraintPolicyBinding, now: Timestamp) -> Row {
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
        measured: figures::worst(binding),
        targets: targets
            .map(|t| draw::clean(&reference(t, &namespace), MAX_REASON_CHARS))
            .collect(),
        since: since.map(|t| t.0),
        age: age::since_time(since, now),
        namespace,
    }
}

fn render(view: &View, filter: &Filter<'_>, request: &PageRequest) -> Markup {
    let rows = &view.bindings.rows;
    let compliance = filter.compliance;
    let link = |name: &str| {
        let chosen = compliance.is_some_and(|compliance| compliance.name() == name);
        request.link("compliance", (!chosen).then_some(name))
    };
    html! {
        (counts(view.counts.iter(), compliance, link))
        (form(view, filter))
        @if rows.is_empty() && request.console.lacks(&[lists::BINDINGS]) {
            (draw::not_known())
        } @else if rows.is_empty() {
            (empty(request))
        } @else {
            (grouped(("", "bindings"), rows, &[
                text("Compliance", &|row| badge(row.compliance.name())),
                name("Binding", &|row| html! {
                    a href=(links::binding(&row.namespace, &row.name)) { (row.namespace) "/" wbr; (row.name) }
                }),
                column("text", "Reason", &|row| html! { (row.reason) }),
                text("Of the limit", &|row| html! { @if let Some(measured) = &row.measured { (measured.bar()) } }),
                text("Targets", &|row| html! { (row.targets.join(", ")) }),
                number("For", &|row| html! { (row.age) }),
            ], is_of_one_offer, offer_title))
            (view.bindings.pager(request, ""))
        }
    }
}

fn is_of_one_offer(a: &Row, b: &Row) -> bool {
    (&a.namespace, &a.offer) == (&b.namespace, &b.offer)
}

fn offer_title(rows: &[Row]) -> Markup {
    let link = |row: &Row| links::offer(&row.namespace, &row.offer);
    html! {
        @if let Some(row) = rows.first() {
            "Offer " a href=(link(row)) { (row.namespace) "/" wbr; (row.offer) }
        }
    }
}

fn form(view: &View, filter: &Filter<'_>) -> Markup {
    let chosen = filter.compliance.map_or("", Compliance::name);
    let compliances = Compliance::WORST_FIRST.map(|c| (c.name(), c.name()));
    let choices = [("", "all")].into_iter().chain(compliances);
    let namespaces = view.namespaces.iter().map(String::as_str);
    let fields = html! {
        (form::name("Namespace", "namespace", filter.namespace, namespaces))
        (form::text("Offer", "offer", filter.offer))
        (form::choice("Compliance", "compliance", chosen, choices))
        (form::search("Text", "q", filter.text.as_deref()))
    };
    form::filter("filter", "/bindings", &fields)
}

fn empty(request: &PageRequest) -> Markup {
    html! {
        @if !request.has_any(&["namespace", "offer", "compliance", "q"]) {
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

#[cfg(test)]
mod tests;
