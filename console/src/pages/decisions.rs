//! `/decisions` lists the last planning rounds and the pods without a node;
//! `/decisions/NAMESPACE/POD` shows one pod.

mod fitting;
mod list;
mod matrix;
mod pod;
mod pod_state;
mod render;
mod round;
mod what_if;
mod why_not;

use tautline_core::model::Pod;

use crate::request;

pub(super) use {list::page as list, pod::page as pod};

/// Returns the link to the page of a pod.
pub(super) fn link(namespace: &str, pod: &str) -> String {
    request::path(&["decisions", namespace, pod])
}

/// Returns whether a pod has no node and may get one.
pub(super) fn waits(pod: &Pod) -> bool {
    pod.node.is_none() && !pod.finished && !pod.terminating
}

#[cfg(test)]
mod tests;
