use anyhow::Result;
use serde::de::DeserializeOwned;
use tautline_console::{Missing, latency_answer, link, source::Component};

use crate::replicas::ReplicaArgs;

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
        let (url, apps) = (self.url.as_deref(), Component::Latency.app_names());
        match latency_answer(self.replicas.get(url, apps, &path).await?) {
            Ok(report) => Ok(Some(report)),
            Err(Missing::Unknown(text)) => {
                note!("error: {text}");
                Ok(None)
            }
            Err(Missing::Failed(error)) => Err(error),
        }
    }
}
