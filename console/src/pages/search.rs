//! `/search?find=TEXT` finds pods, nodes and offers by a part of their names.

use maud::{Markup, html};
use serde::Serialize;

use crate::{
    console::lists,
    draw::{clean, not_known},
    form, links,
    request::{PageRequest, PageResult},
};

/// The field of the query with the text to find; forms that filter a page have `q`.
pub(crate) const FIELD: &str = "find";
/// The maximum number of objects of each kind.
const MAX_FOUND: usize = 50;
const MAX_NAME_CHARS: usize = 260;

#[derive(Debug, Serialize)]
struct View {
    text: String,
    kinds: [Found; 3],
}

/// The objects of one kind whose names contain the text.
#[derive(Debug, Serialize)]
struct Found {
    kind: &'static str,
    total: usize,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    link: String,
}

impl Found {
    fn new<T>(
        (kind, text): (&'static str, &str),
        all: impl Iterator<Item = T>,
        name: impl Fn(&T) -> String,
        link: impl Fn(&T) -> String,
    ) -> Self {
        let named = all.map(|object| (name(&object), object));
        let fits = |name: &str| !text.is_empty() && name.to_lowercase().contains(text);
        let mut found: Vec<(String, T)> = named.filter(|(name, _)| fits(name)).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let rows = found.iter().take(MAX_FOUND).map(|(name, object)| Row {
            name: clean(name, MAX_NAME_CHARS),
            link: link(object),
        });
        Self {
            kind,
            total: found.len(),
            rows: rows.collect(),
        }
    }
}

pub(super) fn page(request: &PageRequest) -> PageResult {
    let text = request.field(FIELD).unwrap_or_default();
    let text = text.trim().to_lowercase();
    let snapshot = request.console.store.snapshot();
    let offers = snapshot.offers().map(|entry| &entry.offer);
    let kinds = [
        Found::new(
            ("Nodes", &text),
            snapshot.nodes(),
            |node| node.name.to_string(),
            |node| links::latency(&node.name),
        ),
        Found::new(
            ("Offers", &text),
            offers,
            |offer| format!("{}/{}", offer.namespace, offer.name),
            |offer| links::offer(&offer.namespace, &offer.name),
        ),
        Found::new(
            ("Pods", &text),
            snapshot.pods(),
            |pod| format!("{}/{}", pod.namespace, pod.name),
            |pod| links::pod(&pod.namespace, &pod.name),
        ),
    ];
    let view = View { text, kinds };
    request.respond("Search", "get offers -A", &view, |view| {
        render(view, request)
    })
}

fn render(view: &View, request: &PageRequest) -> Markup {
    let field = form::search(
        "A part of the name of a pod, a node or an offer",
        FIELD,
        request.field(FIELD),
    );
    html! {
        (form::filter("search", "/search", &field))
        @if view.text.is_empty() {
            p .note { "Write a part of a name, such as " code { "web-0" } " or " code { "shop/" } "." }
        } @else if view.kinds.iter().all(|found| found.total == 0) {
            @if request.console.lacks(&[lists::PODS, lists::NODES, lists::OFFERS]) { (not_known()) }
            @else { p .note { "No pod, node or offer has " code { (clean(&view.text, MAX_NAME_CHARS)) } " in its name." } }
        }
        @for found in view.kinds.iter().filter(|found| found.total > 0) {
            h2 { (found.kind) " " span .dim { (found.total) } }
            ul .found { @for row in &found.rows { li { a href=(row.link) { (row.name) } } } }
            @if found.total > found.rows.len() { p .dim { "and " (found.total - found.rows.len()) " more; write more of the name" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::tests::{self, FakeSource, get};

    const MANIFEST: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: web-node}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: shop}, spec: {containers: [], nodeName: web-node}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db-0, namespace: shop}, spec: {containers: []}}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicyOffer
metadata: {name: web, namespace: shop}
spec: {targets: [{kind: Pod, labelSelector: {matchLabels: {app: web}}}], policies: [near]}
"#;

    #[tokio::test]
    async fn names_of_all_kinds_are_found() {
        let console = Arc::new(tests::console(MANIFEST, FakeSource::default()));
        let view = tests::json(&console, "/search?find=%20WEB").await;
        let totals = [0, 1, 2].map(|kind| view["kinds"][kind]["total"].as_u64());
        assert_eq!(totals, [Some(1), Some(1), Some(1)], "{view}");
        assert_eq!(view["kinds"][2]["rows"][0]["name"], "shop/web-0");
        let (_, page) = get(&console, "/search?find=shop%2F").await;
        for link in ["/decisions/shop/db-0", "/decisions/shop/web-0", "name=web"] {
            assert!(page.contains(link), "{link}: {page}");
        }
        let (_, page) = get(&console, "/search?find=%3Cb%3Enone").await;
        assert!(
            page.contains("No pod, node or offer") && !page.contains("<b>none"),
            "{page}"
        );
        let (_, page) = get(&console, "/search").await;
        assert!(page.contains("Write a part of a name"), "{page}");
    }
}
