//! `/` shows the state of the whole cluster, each part with a link to its page.

mod agents;
mod bindings;
mod feed;
mod gpu;
mod providers;
mod render;
mod waiting;

use std::sync::Arc;

use anyhow::Result;
use axum::{Router, response::Response, routing::get};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use tautline_runtime::error_text::error_text;

use crate::{
    Console, controller,
    draw::clean,
    events, extender,
    request::{PageError, PageInfo, PageRequest},
};

const MAX_ERROR_CHARS: usize = 1000;

pub(super) fn routes() -> Router<Arc<Console>> {
    Router::new().route("/", get(page))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Overview {
    nodes: usize,
    pods: usize,
    offers: usize,
    policies: usize,
    bindings: bindings::Bindings,
    waiting: waiting::Waiting,
    extender: Part<providers::Extender>,
    gpu: Part<gpu::Gpu>,
    agents: Part<agents::Agents>,
    feed: feed::Feed,
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
                error: clean(&error_text(error.as_ref()), MAX_ERROR_CHARS),
            },
        }
    }
}

async fn page(request: PageRequest) -> Result<Response, PageError> {
    let now = Timestamp::now();
    let view = overview(&request.console, now).await;
    let info = PageInfo {
        title: "Overview",
        section: "/",
        command: "doctor",
        live: &[
            events::NODES,
            events::POLICIES,
            events::BINDINGS,
            events::TICKS,
        ],
    };
    Ok(request.respond(&info, &view, |view| render::page(view, now)))
}

async fn overview(console: &Console, now: Timestamp) -> Overview {
    let source = &*console.source;
    let (statuses, summaries, decisions, agents, inspected) = tokio::join!(
        extender::statuses(source),
        extender::summaries(source),
        controller::decisions(source),
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
        bindings: bindings::Bindings::new(&bindings),
        waiting: waiting::Waiting::new(&snapshot),
        extender: Part::new(statuses.map(|all| providers::Extender::new(&all))),
        gpu: Part::new(inspected.map(|i| gpu::Gpu::new(&i.totals))),
        agents: Part::new(agents.map(|agents| agents::Agents {
            agents,
            nodes: snapshot.node_count(),
        })),
        feed: feed::Feed::new(summaries, decisions, &bindings, now),
        missing,
        of_manifests: console.of_manifests,
    }
}

#[cfg(test)]
mod tests;
