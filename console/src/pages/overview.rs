//! `/` shows the state of the whole cluster, each part with a link to its page.

mod agents;
mod counts;
mod feed;
mod providers;
mod tiles;

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;

use self::{
    agents::Agents,
    counts::{Bindings, Gpu, Waiting},
    feed::Feed,
    providers::Extender,
};
use crate::{
    Console, admin,
    console::lists,
    draw::error_line,
    events,
    request::{PageInfo, PageRequest, PageResult},
};

#[derive(Debug, Serialize)]
struct Overview {
    nodes: usize,
    pods: usize,
    offers: usize,
    policies: usize,
    bindings: Bindings,
    waiting: Waiting,
    extender: Part<Extender>,
    gpu: Part<Gpu>,
    agents: Part<Agents>,
    feed: Feed,
    /// The names of the lists that are not complete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    #[serde(skip)]
    of_manifests: bool,
}

impl Overview {
    fn lacks(&self, lists: &[&str]) -> bool {
        self.missing.iter().any(|list| lists.contains(&&**list))
    }
}

/// A part of the page whose source may not answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Part<T> {
    Known(T),
    Failed { error: String },
}

impl<T> Part<T> {
    fn new(read: Result<T>) -> Self {
        match read {
            Ok(part) => Self::Known(part),
            Err(error) => Self::Failed {
                error: error_line(&error),
            },
        }
    }
}

pub(super) async fn page(request: &PageRequest) -> PageResult {
    let now = Timestamp::now();
    let view = overview(&request.console, now).await;
    let info = PageInfo {
        title: "Overview",
        command: "doctor",
        live: &[
            events::NODES,
            events::POLICIES,
            events::BINDINGS,
            events::TICKS,
        ],
    };
    request.respond(&info, &view, |view| render(view, now))
}

async fn overview(console: &Console, now: Timestamp) -> Overview {
    let source = &*console.source;
    let (statuses, summaries, decisions, agents, inspected) = tokio::join!(
        admin::statuses(source),
        admin::summaries(source),
        admin::decisions(source),
        agents::read(source),
        console.inspections.get(&console.store),
    );
    // This is read before the objects, whose lists may become complete in between.
    let missing = console.readiness.missing();
    let snapshot = console.store.snapshot();
    let bindings = console.bindings.list();
    Overview {
        nodes: snapshot.node_count(),
        pods: snapshot.pod_count(),
        offers: console.offers.list().len(),
        policies: console.policies.list().len(),
        bindings: Bindings::new(&bindings),
        waiting: Waiting::new(&snapshot),
        extender: Part::new(statuses.map(|all| Extender::new(&all))),
        gpu: Part::new(inspected.map(|i| Gpu::new(&i.totals))),
        agents: Part::new(agents.map(|agents| Agents {
            agents,
            nodes: snapshot.node_count(),
        })),
        feed: Feed::new(summaries, decisions, &bindings, now),
        missing,
        of_manifests: console.of_manifests,
    }
}

fn render(view: &Overview, now: Timestamp) -> Markup {
    html! {
        @if view.offers == 0 && !view.lacks(&[lists::OFFERS]) { (no_offer(view.of_manifests)) }
        (tiles::section(view, now))
        (providers::render(&view.extender, now))
        (feed::render(&view.feed, now))
    }
}

fn no_offer(of_manifests: bool) -> Markup {
    if of_manifests {
        return html! {
            p .note {
                "The manifests have no ConstraintPolicyOffer, so no pod is governed. One selects pods and names policies: "
                code { "examples/edge-inference" } " has some."
            }
        };
    }
    html! {
        p .note {
            "No offer exists yet, so Tautline affects no pod. An offer selects pods and names policies: "
            code { "kubectl apply -f examples/near-server" } " makes the first one; docs/tutorial.md explains it."
        }
    }
}

#[cfg(test)]
mod tests;
