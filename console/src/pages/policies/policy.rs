//! Builds and renders the policies on the page `/policies`, with their rules and the offers that
//! use them; policies with problems come first.

use std::{collections::HashMap, sync::Arc};

use kube::ResourceExt;
use maud::{Markup, html};
use serde::Serialize;
use tautline_api::ConstraintPolicy;
use tautline_core::index::Kind;

use super::rules::{self, MAX_RULES, Provider, Rule};
use crate::{
    console::lists,
    draw::{clean_text as clean, joined, not_known, problems},
    links,
    request::{PageRequest, PageResult},
    table::Window,
};

const MAX_USERS: usize = 8;

#[derive(Serialize)]
pub(super) struct View {
    problems: Vec<String>,
    policies: Window<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    rules: Vec<Rule>,
    /// The names of the first offers that use the policy.
    offers: Vec<String>,
    offer_count: usize,
}

pub(super) fn view(request: &PageRequest) -> PageResult<View> {
    let console = &request.console;
    let snapshot = console.store.snapshot();
    let mut users: HashMap<(&str, &str), Vec<&str>> = HashMap::new();
    for entry in snapshot.offers() {
        for policy in &entry.offer.policies {
            let key = (&*entry.offer.namespace, &**policy);
            users.entry(key).or_default().push(&entry.offer.name);
        }
    }
    let provider =
        |namespace: &str, rule: &str| Provider::new(&snapshot, &console.trusted, namespace, rule);
    let all = console.policies.list();
    let namespace = |p: &ConstraintPolicy| p.metadata.namespace.clone().unwrap_or_default();
    let shown = all
        .iter()
        .filter(|p| rules::is_wanted(request, &namespace(p), &p.name_any()));
    let mut shown: Vec<&Arc<ConstraintPolicy>> = shown.collect();
    // The sort is stable: policies with problems come first, and both groups stay sorted by name.
    shown.sort_by_cached_key(|policy| {
        let here = namespace(policy);
        let mut rules = policy.spec.rules.iter();
        !rules.any(|rule| provider(&here, &rule.name).problem.is_some())
    });
    let policies = Window::new(request, &shown, |policy| {
        let (namespace, name) = (namespace(policy), policy.name_any());
        let of = users.get(&(namespace.as_str(), name.as_str()));
        let of = of.map_or(&[][..], Vec::as_slice);
        let rules = policy.spec.rules.iter().take(MAX_RULES).map(|rule| Rule {
            policy: None,
            name: clean(&rule.name),
            request: clean(&rule.request.0),
            limit: clean(&rule.limit.0),
            weight: Some(rule.weight.unwrap_or(1)),
            provider: provider(&namespace, &rule.name),
        });
        Row {
            rules: rules.collect(),
            offers: of.iter().take(MAX_USERS).map(ToString::to_string).collect(),
            offer_count: of.len(),
            namespace,
            name,
        }
    })?;
    Ok(View {
        problems: rules::unusable(console, Kind::Policy),
        policies,
    })
}

pub(super) fn render(view: &View, request: &PageRequest) -> Markup {
    let rows = &view.policies.rows;
    html! {
        (problems(&view.problems))
        @if rows.is_empty() && request.console.lacks(&[lists::POLICIES]) {
            (not_known())
        } @else if rows.is_empty() {
            p .note {
                "No policy is here. A ConstraintPolicy names rules with a request and a limit: "
                code { "tautline plan -f examples/edge-inference" } " shows some at work."
            }
        }
        div .cards { @for row in rows { (card(row)) } }
        (view.policies.pager(request, ""))
    }
}

fn card(row: &Row) -> Markup {
    let offer = |name: &String| html! { a href=(links::offer(&row.namespace, name)) { (name) } };
    html! {
        section .tile {
            h2 { (row.namespace) "/" wbr; (row.name) }
            (rules::render(&row.namespace, &row.rules, false))
            p .dim {
                @if row.offers.is_empty() { "No offer names it: it has no effect." }
                @else {
                    "Offers: " (joined(row.offers.iter().map(offer)))
                    @if row.offer_count > row.offers.len() {
                        " and " (row.offer_count - row.offers.len()) " more"
                    }
                }
            }
        }
    }
}
