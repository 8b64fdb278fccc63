//! `/bindings` lists every binding, the worst first; `/bindings/NAMESPACE/NAME` shows one binding.

mod detail;
mod list;
mod timeline;

use maud::{Markup, html};
use serde::Serialize;
use tautline_api::constraint::Compliance;

use crate::{draw, request::path};

pub(super) use {detail::page as binding, list::page as list};

/// Returns the link to the page of a binding.
pub(super) fn link(namespace: &str, name: &str) -> String {
    path(&["bindings", namespace, name])
}

/// Renders a compliance with its name and colour.
fn badge(compliance: Compliance) -> Markup {
    html! { span class={ "state " (tone(compliance)) } { (compliance.name()) } }
}

/// Returns the CSS class for the colour of a compliance.
pub(super) fn tone(compliance: Compliance) -> &'static str {
    match compliance {
        Compliance::Error | Compliance::Violation => "bad",
        Compliance::Limit => "near",
        Compliance::Pending => "none",
        Compliance::Compliant => "good",
    }
}

/// The number of bindings with a compliance.
#[derive(Debug, Serialize)]
pub(super) struct Count {
    compliance: Compliance,
    count: usize,
}

impl Count {
    /// Returns the numbers of bindings, by the rank of their compliance.
    pub(super) fn all(counts: [usize; Compliance::WORST_FIRST.len()]) -> Vec<Self> {
        let all = Compliance::WORST_FIRST.into_iter().zip(counts);
        all.map(|(compliance, count)| Self { compliance, count })
            .collect()
    }
}

/// Renders the share of each compliance, as one bar and as links that `link` gives, to the bindings
/// with a compliance. `chosen` is the compliance that the page shows.
pub(super) fn counts<'a>(
    counts: impl Iterator<Item = &'a Count> + Clone,
    chosen: Option<Compliance>,
    link: impl Fn(&str) -> String,
) -> Markup {
    let parts = counts
        .clone()
        .map(|c| (tone(c.compliance), c.compliance.name(), c.count as u64));
    html! {
        (draw::share("Bindings", parts))
        ul .counts {
            @for c in counts {
                li {
                    a href=(link(c.compliance.name())) aria-current=[(chosen == Some(c.compliance)).then_some("true")] {
                        (badge(c.compliance)) " " b { (c.count) }
                    }
                }
            }
        }
    }
}

/// Renders the bindings of the overview that are there, with links to their pages.
pub(super) fn existing(all: &[Count]) -> Markup {
    let existing = all.iter().filter(|count| count.count > 0);
    counts(existing, None, |name| {
        crate::request::link("/bindings", [("compliance", name)])
    })
}

#[cfg(test)]
mod tests;
