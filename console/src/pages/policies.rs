//! `/policies` lists offers and policies, with the Services that answer their rules. Those with
//! problems come first.

mod offers;
mod policy;
mod rules;

use maud::{Markup, html};

use crate::{
    form, links,
    request::{PageRequest, PageResult},
};

const PATH: &str = "/policies";
/// The values of the query's field `list`, with their names and commands; the first is the default.
const LISTS: [(&str, &str, &str); 2] = [
    ("offers", "Offers", "get offers -A"),
    ("policies", "Policies", "get policies -A"),
];

pub(super) fn page(request: &PageRequest) -> PageResult {
    let choices = LISTS.map(|list| (list.0, list));
    let (list, _, command) = request.choice("list", &choices)?.unwrap_or(LISTS[0]);
    let fields = html! {
        (form::hidden("list", list))
        (form::text("Namespace", "namespace", request.field("namespace")))
        (form::search("Name", "name", request.field("name")))
    };
    let around = |content: Markup| {
        html! {
            nav .tabs aria-label="Lists" {
                @for (other, name, _) in LISTS {
                    a href=(links::link(PATH, [("list", other)])) aria-current=[(other == list).then_some("page")] { (name) }
                }
            }
            (form::filter("filter", PATH, &fields))
            (content)
        }
    };
    match list {
        "policies" => {
            let view = policy::view(request)?;
            let render = |v: &_| around(policy::render(v, request));
            request.respond("Policies", command, &view, render)
        }
        _ => {
            let view = offers::view(request)?;
            let render = |v: &_| around(offers::render(v, request));
            request.respond("Policies", command, &view, render)
        }
    }
}

#[cfg(test)]
mod tests;
