//! The frame of every page: head and navigation.

use maud::{DOCTYPE, Markup, html};
use tautline_core::text;

use crate::{Console, pages::search};

/// The paths and names of the sections, in the order of the navigation.
const SECTIONS: [(&str, &str); 6] = [
    ("/", "Overview"),
    ("/decisions", "Decisions"),
    ("/bindings", "Bindings"),
    ("/gpu", "GPU"),
    ("/latency", "Latency"),
    ("/policies", "Policies"),
];

const MAX_PROBLEM_CHARS: usize = 1000;

/// The configuration of htmx, which must not write styles or evaluate text: the content security
/// policy forbids both.
const HTMX: &str = r#"{"includeIndicatorStyles":false,"allowEval":false,"historyCacheSize":0,"selfRequestsOnly":true,"attributesToSettle":["class"]}"#;

/// Renders the page with the title and the address `here`; `console.js` refreshes its content if
/// `is_live`.
pub(crate) fn document(
    console: &Console,
    (title, here): (&str, &str),
    is_live: bool,
    content: &Markup,
    footer: &Markup,
) -> Markup {
    let missing = console.readiness.missing();
    let is_current = |section: &str| match section {
        "/" => here == "/" || here.starts_with("/?"),
        _ => here.starts_with(section),
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="htmx-config" content=(HTMX);
                title { (title) " · Tautline" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/assets/console.css";
                script src="/assets/console.js" {}
                script src="/assets/htmx.min.js" defer {}
            }
            body {
                header {
                    a .skip href="#main" { "Skip to content" }
                    a .brand href="/" { "Tautline" }
                    nav aria-label="Sections" {
                        @for (path, name) in SECTIONS {
                            a href=(path) aria-current=[is_current(path).then_some("page")] { (name) }
                        }
                    }
                    a .find href="/search" { "Search" }
                    form .find role="search" method="get" action="/search" {
                        input type="search" name=(search::FIELD) placeholder="pod, node or offer" aria-label="Search pods, nodes and offers";
                    }
                    span .cluster title="The kubeconfig's context, or the manifests" { (console.title) }
                    button #theme type="button" aria-label="Change between dark and light" { "◐" }
                }
                main #main tabindex="-1" {
                    h1 { (title) }
                    div #live hx-get=(here) hx-select="#live" hx-swap="outerHTML" hx-trigger=(if is_live { "console:again" } else { "none" }) {
                        @if !missing.is_empty() {
                            p .note role="status" { "Not complete yet: waiting for " (missing.join(", ")) }
                        }
                        @for problem in console.problems.load().iter() {
                            p .error role="status" { (text::sanitize(problem, MAX_PROBLEM_CHARS)) }
                        }
                        (content)
                    }
                }
                (footer)
            }
        }
    }
}
