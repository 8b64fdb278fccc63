//! Reads the controller's admin port, and merges the answers of its replicas.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{
    extender::admin,
    source::{Component, Source},
};

/// A decision on a violation, as the page `/decisions` of the controller has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Decision {
    pub time: String,
    /// The `namespace/name` of the binding.
    pub binding: String,
    pub action: String,
    pub outcome: String,
    pub text: String,
}

/// Returns the decisions of all replicas, the newest of each replica first. Only a leader makes
/// decisions.
pub(crate) async fn decisions(source: &dyn Source) -> Result<Vec<Decision>> {
    let answers = admin(source, Component::Controller, "/decisions").await?;
    let mut all: Vec<Decision> = Vec::new();
    for answer in answers.iter().filter(|a| a.status == 200) {
        let parsed = serde_json::from_slice::<Vec<Decision>>(&answer.body);
        all.extend(parsed.with_context(|| format!("{} has another answer", answer.from))?);
    }
    Ok(all)
}
