//! `/search?find=TEXT` finds pods, nodes and offers by a part of their names.

use maud::{Markup, html};
use serde::Serialize;

use super::decisions::waits;
use crate::{
    console::lists,
    draw::{clean, not_known, state},
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
    nodes: Found,
    offers: Found,
    pods: Found,
}

/// The objects of one kind whose names contain the text.
#[derive(Debug, Default, Serialize)]
struct Found {
    rows: Vec<Row>,
    total: usize,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// The node of a pod; absent for a pod that waits, and for other kinds.
    node: Option<String>,
    waits: bool,
    #[serde(skip)]
    link: String,
}

impl Found {
    /// Adds an object if the text is a part of its name. `row` is called for the shown ones only.
    fn add(&mut self, text: &str, name: &str, row: impl FnOnce(String) -> Row) {
        if !text.is_empty() && name.to_lowercase().contains(text) {
            self.total += 1;
            if self.rows.len() < MAX_FOUND {
                self.rows.push(row(clean(name, MAX_NAME_CHARS)));
            }
        }
    }

    fn sorted(mut self) -> Self {
        self.rows.sort_by(|a, b| a.name.cmp(&b.name));
        self
    }
}

pub(super) fn page(request: &PageRequest) -> PageResult {
    let text = request
        .field(FIELD)
        .unwrap_or_default()
        .trim()
        .to_lowercase();
    let snapshot = request.console.store.snapshot();
    let (mut pods, mut nodes, mut offers) = (Found::default(), Found::default(), Found::default());
    for pod in snapshot.pods() {
        pods.add(&text, &format!("{}/{}", pod.namespace, pod.name), |name| {
            Row {
                name,
                node: pod.node.as_deref().map(str::to_owned),
                waits: waits(pod),
                link: links::pod(&pod.namespace, &pod.name),
            }
        });
    }
    for node in snapshot.nodes() {
        nodes.add(&text, &node.name, |name| Row {
            name,
            node: None,
            waits: false,
            link: links::latency(&node.name),
        });
    }
    for entry in snapshot.offers() {
        let offer = &entry.offer;
        offers.add(
            &text,
            &format!("{}/{}", offer.namespace, offer.name),
            |name| Row {
                name,
                node: None,
                waits: false,
                link: links::offer(&offer.namespace, &offer.name),
            },
        );
    }
    let view = View {
        text,
        nodes: nodes.sorted(),
        offers: offers.sorted(),
        pods: pods.sorted(),
    };
    request.respond("Search", "get offers -A", &view, |view| {
        render(view, request)
    })
}

fn render(view: &View, request: &PageRequest) -> Markup {
    let kinds = [
        ("Nodes", &view.nodes),
        ("Offers", &view.offers),
        ("Pods", &view.pods),
    ];
    html! {
        (form::filter("search", "/search", &form::search("A part of the name of a pod, a node or an offer", FIELD, request.field(FIELD))))
        @if view.text.is_empty() {
            p .note { "Write a part of a name, such as " code { "web-0" } " or " code { "shop/" } "." }
        } @else if kinds.iter().all(|(_, found)| found.total == 0) {
            @if request.console.lacks(&[lists::PODS, lists::NODES, lists::OFFERS]) { (not_known()) }
            @else { p .note { "No pod, node or offer has " code { (clean(&view.text, MAX_NAME_CHARS)) } " in its name." } }
        }
        @for (kind, found) in kinds {
            @if found.total > 0 { (list(kind, found)) }
        }
    }
}

fn list(kind: &str, found: &Found) -> Markup {
    html! {
        h2 { (kind) " " span .dim { (found.total) } }
        ul .found {
            @for row in &found.rows {
                li {
                    a href=(row.link) { (row.name) }
                    @if let Some(node) = &row.node { span .dim { " on " (clean(node, MAX_NAME_CHARS)) } }
                    @if row.waits { " " (state("near", "waits")) }
                }
            }
        }
        @if found.total > found.rows.len() { p .dim { "and " (found.total - found.rows.len()) " more; write more of the name" } }
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
        let totals = ["nodes", "offers", "pods"].map(|kind| view[kind]["total"].as_u64());
        assert_eq!(totals, [Some(1), Some(1), Some(1)], "{view}");
        assert_eq!(view["pods"]["rows"][0]["node"], "web-node");
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
