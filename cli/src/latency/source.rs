//! Reads the reports of the latency provider: of a cluster, of one admin port, or of manifests.

use anyhow::Result;
use serde::de::DeserializeOwned;
use tautline_console::{Missing, latency_answer, link, source::Component};
use tautline_core::trust::OWN_NAMESPACE;

use crate::{
    manifests::ManifestArgs, provider_args::TrustArgs, replicas::ReplicaArgs,
    ui::EvaluatedManifests,
};

#[derive(clap::Args)]
pub(super) struct SourceArgs {
    #[command(flatten)]
    manifests: ManifestArgs,
    #[command(flatten)]
    trust: TrustArgs,
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
        let answers = match self.manifests.read(None)? {
            Some(items) => {
                let trusted = self.trust.trusted_namespaces(OWN_NAMESPACE);
                let evaluated = EvaluatedManifests::new(items, trusted).await?;
                let answer = evaluated.admin(Component::Latency, &path).await;
                evaluated.stop().await;
                vec![answer?]
            }
            None => self.replicas.get(url, apps, &path).await?,
        };
        match latency_answer(answers) {
            Ok(report) => Ok(Some(report)),
            Err(Missing::Unknown(text)) => {
                note!("error: {text}");
                Ok(None)
            }
            Err(Missing::Failed(error)) => Err(error),
        }
    }
}
