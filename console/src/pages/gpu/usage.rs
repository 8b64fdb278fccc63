//! What is used of the cards, as the agents on the nodes report it to the provider.

use anyhow::{Context, Result};
use tautline_gpu_slice::report::{UseAnswer, Uses};

use crate::{
    extender::admin,
    request::escaped,
    source::{Component, Source},
};

/// The use of all cards is read up to so many nodes with agents, else that of the shown nodes.
pub(super) const MAX_NODES: usize = 100;

/// The last reports of these nodes; `None`: of all.
pub(super) async fn read(source: &dyn Source, nodes: Option<&[&str]>) -> Result<Uses> {
    let path = match nodes {
        None => "/gpu/use".to_owned(),
        Some(nodes) => {
            let names: Vec<String> = nodes.iter().map(|name| escaped(name)).collect();
            format!("/gpu/use?nodes={}", names.join(","))
        }
    };
    let answers = admin(source, Component::Gpu, &path).await?;
    let answers = answers.iter().map(|answer| UseAnswer {
        from: &answer.from,
        status: answer.status,
        body: &answer.body,
    });
    Uses::merge(answers).context("how much of the cards is used is not known")
}
