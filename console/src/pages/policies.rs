//! `/policies` lists offers, policies, and the Services that answer their rules. Offers and
//! policies with problems come first.

mod offers;
mod policy;
mod providers;

use std::{collections::BTreeMap, sync::Arc};

use axum::{Router, response::Response, routing::get};
use maud::{Markup, html};
use tautline_core::index::Kind;

use crate::{
    Console, draw, events,
    request::{self, PageError, PageInfo, PageRequest},
};

const MAX_TEXT_CHARS: usize = 600;
const PATH: &str = "/policies";
/// The values of the query's field `list`, with their names and commands; the first is the default.
const LISTS: [(&str, &str, &str); 3] = [
    ("offers", "Offers", "get offers -A"),
    ("policies", "Policies", "get policies -A"),
    ("providers", "Providers", "doctor"),
];

pub(super) fn routes() -> Router<Arc<Console>> {
    Router::new().route(PATH, get(page))
}

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
    let fields = fields.map(|(field, value)| (field.to_owned(), value.to_owned()));
    request::link(PATH, &BTreeMap::from(fields))
}

/// The filter of the objects to show, from the fields of the query.
struct Filter<'a> {
    namespace: Option<&'a str>,
    name: Option<&'a str>,
}

impl Filter<'_> {
    fn matches(&self, namespace: &str, name: &str) -> bool {
        self.namespace.is_none_or(|wanted| wanted == namespace)
            && self.name.is_none_or(|wanted| name.contains(wanted))
    }
}

async fn page(request: PageRequest) -> Result<Response, PageError> {
    let wanted = request.field("list").unwrap_or(LISTS[0].0);
    let Some((list, _, command)) = LISTS.into_iter().find(|(list, ..)| *list == wanted) else {
        let all = LISTS.map(|(list, ..)| list).join(", ");
        return Err(PageError::bad(format!("list={wanted}: write one of {all}")));
    };
    let info = PageInfo {
        title: "Policies",
        section: PATH,
        command,
        live: &[events::POLICIES, events::BINDINGS],
    };
    let filter = Filter {
        namespace: request.field("namespace"),
        name: request.field("name"),
    };
    let around = |content: Markup| {
        html! {
            (tabs(list))
            (form(list, &filter))
            (content)
        }
    };
    Ok(match list {
        "policies" => {
            let view = policy::view(&request, &filter)?;
            request.respond(&info, &view, |v| around(policy::render(v, &request)))
        }
        "providers" => {
            let view = providers::view(&request, &filter)?;
            request.respond(&info, &view, |v| around(providers::render(v, &request)))
        }
        _ => {
            let view = offers::view(&request, &filter)?;
            request.respond(&info, &view, |v| around(offers::render(v, &request)))
        }
    })
}

fn tabs(current: &str) -> Markup {
    html! {
        nav .tabs aria-label="Lists" {
            @for (list, name, _) in LISTS {
                @let fields = BTreeMap::from([("list".to_owned(), list.to_owned())]);
                a href=(request::link(PATH, &fields)) aria-current=[(list == current).then_some("page")] { (name) }
            }
        }
    }
}

fn form(list: &str, filter: &Filter<'_>) -> Markup {
    html! {
        form #filter .filter method="get" action=(PATH) hx-preserve="true" {
            input type="hidden" name="list" value=(list);
            label { "Namespace" input name="namespace" value=(filter.namespace.unwrap_or_default()); }
            label { "Name" input type="search" name="name" value=(filter.name.unwrap_or_default()); }
            button { "Filter" }
        }
    }
}

/// Returns a text for each object of a kind whose current version cannot be used.
fn unusable(console: &Console, kind: Kind) -> Vec<String> {
    let rejected = console.store.rejected(kind).into_iter();
    let texts = rejected.map(|(key, why)| format!("{key}: {why}; its last usable version counts"));
    texts.map(|text| clean(&text)).collect()
}

fn problems(problems: &[String]) -> Markup {
    html! {
        @if !problems.is_empty() {
            ul .problems { @for problem in problems { li { (problem) } } }
        }
    }
}

fn clean(text: &str) -> String {
    draw::clean(text, MAX_TEXT_CHARS)
}

#[cfg(test)]
mod tests;
