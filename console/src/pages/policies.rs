//! `/policies` lists offers, policies, and the Services that answer their rules. Offers and
//! policies with problems come first.

mod offers;
mod policy;
mod providers;

use maud::{Markup, html};
use serde::Serialize;
use tautline_core::index::Kind;

use crate::{
    Console,
    draw::clean_text,
    events, form,
    request::{self, PageInfo, PageRequest, PageResult},
    table::{Number, Text, table},
};

const PATH: &str = "/policies";
/// The values of the query's field `list`, with their names and commands; the first is the default.
const LISTS: [(&str, &str, &str); 3] = [
    ("offers", "Offers", "get offers -A"),
    ("policies", "Policies", "get policies -A"),
    ("providers", "Providers", "doctor"),
];

/// Returns the link to an offer on this page.
pub(super) fn offer_link(namespace: &str, name: &str) -> String {
    named_link("offers", namespace, name)
}

/// Returns the link to a policy on this page.
pub(super) fn policy_link(namespace: &str, name: &str) -> String {
    named_link("policies", namespace, name)
}

fn named_link(list: &str, namespace: &str, name: &str) -> String {
    let fields = [("list", list), ("namespace", namespace), ("name", name)];
    request::link(PATH, fields)
}

/// Returns whether the fields of the query select an object.
fn is_wanted(request: &PageRequest, namespace: &str, name: &str) -> bool {
    let in_namespace = |wanted| wanted == namespace;
    request.field("namespace").is_none_or(in_namespace)
        && request.field("name").is_none_or(|part| name.contains(part))
}

pub(super) fn page(request: &PageRequest) -> PageResult {
    let choices = LISTS.map(|list| (list.0, list));
    let (list, _, command) = request.choice("list", &choices)?.unwrap_or(LISTS[0]);
    let info = PageInfo {
        title: "Policies",
        command,
        live: &[events::POLICIES, events::BINDINGS],
    };
    let fields = html! {
        (form::hidden("list", list))
        (form::text("Namespace", "namespace", request.field("namespace")))
        (form::search("Name", "name", request.field("name")))
    };
    let around = |content: Markup| {
        html! {
            nav .tabs aria-label="Lists" {
                @for (other, name, _) in LISTS {
                    a href=(request::link(PATH, [("list", other)])) aria-current=[(other == list).then_some("page")] { (name) }
                }
            }
            (form::filter("filter", PATH, &fields))
            (content)
        }
    };
    match list {
        "policies" => {
            let view = policy::view(request)?;
            request.respond(&info, &view, |v| around(policy::render(v, request)))
        }
        "providers" => {
            let view = providers::view(request)?;
            request.respond(&info, &view, |v| around(providers::render(v, request)))
        }
        _ => {
            let view = offers::view(request)?;
            request.respond(&info, &view, |v| around(offers::render(v, request)))
        }
    }
}

/// A rule of a policy, with its policy on the list of offers and its weight on that of policies.
#[derive(Serialize)]
struct Rule {
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    name: String,
    request: String,
    limit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<i64>,
    #[serde(flatten)]
    provider: providers::Provider,
}

/// Renders the rules of an offer, with their policies, or those of a policy, with their weights.
fn rules(namespace: &str, rules: &[Rule], of_offer: bool) -> Markup {
    let fourth = if of_offer {
        Text("Policy")
    } else {
        Number("Weight")
    };
    let columns = [
        Text("Rule"),
        Number("Request"),
        Number("Limit"),
        fourth,
        Text("Answered by"),
    ];
    let rows = html! {
        @for rule in rules {
            @let provider = &rule.provider;
            tr {
                th scope="row" { (rule.name) }
                td .number { (rule.request) }
                td .number { (rule.limit) }
                @if let Some(policy) = &rule.policy { td { a href=(policy_link(namespace, policy)) { (policy) } } }
                @if let Some(weight) = rule.weight { td .number { (weight) } }
                td {
                    @if let Some(service) = &provider.service { (service) }
                    @if let Some(problem) = &provider.problem {
                        @let tone = if provider.service.is_some() { "near" } else { "bad" };
                        " " span class={ "state wrap " (tone) } { (problem) }
                    }
                }
            }
        }
    };
    table(columns, &rows)
}

/// Returns a text for each object of a kind whose current version cannot be used.
fn unusable(console: &Console, kind: Kind) -> Vec<String> {
    let rejected = console.store.rejected(kind).into_iter();
    let texts = rejected.map(|(key, why)| format!("{key}: {why}; its last usable version counts"));
    texts.map(|text| clean_text(&text)).collect()
}

#[cfg(test)]
mod tests;
