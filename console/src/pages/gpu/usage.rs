//! Reads the use of cards, which the agents on the nodes report to the provider.

use anyhow::{Context, Result};
use tautline_gpu_slice::report::Uses;

use crate::{
    admin::admin,
    draw::error_line,
    request::escaped,
    source::{Component, Source},
};

/// The number of nodes with agents up to which the use of all cards is read. With more, only the
/// use of the shown nodes is read.
pub(super) const MAX_NODES: usize = 100;

/// Returns the last reports of `nodes`, or of all nodes for `None`. If they cannot be read, they are
/// empty, and the second value is the error.
pub(super) async fn read(source: &dyn Source, nodes: Option<&[&str]>) -> (Uses, Option<String>) {
    match try_read(source, nodes).await {
        Ok(uses) => (uses, None),
        Err(error) => (Uses::default(), Some(error_line(&error))),
    }
}

async fn try_read(source: &dyn Source, nodes: Option<&[&str]>) -> Result<Uses> {
    let path = match nodes {
        None => "/gpu/use".to_owned(),
        Some(nodes) => {
            let names: Vec<String> = nodes.iter().map(|name| escaped(name)).collect();
            format!("/gpu/use?nodes={}", names.join(","))
        }
    };
    let answers = admin(source, Component::Gpu, &path).await?;
    let answers = answers.iter().map(|a| (&*a.from, a.status, &*a.body));
    Uses::merge(answers).context("how much of the cards is used is not known")
}
