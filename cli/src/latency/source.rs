use std::cmp::Reverse;

use anyhow::{Context, Result, bail};
use hyper::StatusCode;
use serde::de::DeserializeOwned;
use tautline_console::link;

use crate::replicas::{Answer, ReplicaArgs};

#[derive(clap::Args)]
pub(super) struct SourceArgs {
    /// Admin port of one latency provider, instead of all replicas
    #[arg(long, env = "TAUTLINE_LATENCY")]
    url: Option<String>,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

impl SourceArgs {
    /// Gets a report; returns `None`, with a line on standard error, if a named node or zone does
    /// not exist.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        report: &str,
        fields: &[(&str, Option<&str>)],
    ) -> Result<Option<T>> {
        let fields = fields
            .iter()
            .filter_map(|(name, value)| Some((*name, (*value)?)));
        let path = link(&format!("/latency/{report}"), fields);
        let url = self.url.as_deref();
        let mut answers = self.replicas.get(url, &["tautline-latency"], &path).await?;
        // Each replica answers for all agents, but a replica that has just started may know less.
        answers.sort_by_key(|a| (a.status != StatusCode::OK, Reverse(a.body.len())));
        let Some(Answer { from, status, body }) = answers.into_iter().next() else {
            return Ok(None);
        };
        let message = String::from_utf8_lossy(&body);
        match status.as_u16() {
            200 => {
                let report = serde_json::from_slice(&body);
                report.map(Some).with_context(|| {
                    format!("{from} returned no report; is it a latency provider of this version?")
                })
            }
            404 if message.starts_with("there is no ") => {
                note!("error: {}", message.trim_end());
                Ok(None)
            }
            404 => bail!(
                "{from} does not exist; it is not the admin port of a latency provider of this version"
            ),
            other => bail!("{from} answered {other}: {}", message.trim()),
        }
    }
}
