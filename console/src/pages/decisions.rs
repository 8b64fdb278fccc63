//! `/decisions`: the last rounds, and pods that wait; `/decisions/NAMESPACE/POD`: one pod.

mod fitting;
mod list;
mod matrix;
mod order;
mod pod;
mod pod_state;
mod render;
mod round;
mod what_if;
mod why_not;

use std::sync::Arc;

use axum::{Router, routing::get};
use tautline_core::model::Pod;

use crate::{Console, request};

pub(super) fn routes() -> Router<Arc<Console>> {
    Router::new()
        .route("/decisions", get(list::page))
        .route("/decisions/{namespace}/{pod}", get(pod::page))
}

/// The page of a pod, as a link.
pub(super) fn link(namespace: &str, pod: &str) -> String {
    request::path(&["decisions", namespace, pod])
}

/// Whether a pod has no node, and may get one.
pub(super) fn waits(pod: &Pod) -> bool {
    pod.node.is_none() && !pod.finished && !pod.terminating
}

#[cfg(test)]
mod tests;
