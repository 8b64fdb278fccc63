//! Reads an offer with its pods and nodes, and asks an extender: those of a cluster or of manifests.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use serde_json::json;
use tautline_api::{ConstraintPolicyOffer, convert, manifest::Item};
use tautline_console::source::Component;
use tautline_core::{model::Offer, trust::OWN_NAMESPACE};
use tautline_scheduler_extender::WhatIf;

use super::subject::{Subject, selects};
use crate::{
    fetch, http::Http, local::LocalScheduler, manifests::ManifestArgs, provider_args::TrustArgs,
    replicas::ReplicaArgs, scope::Scope, ui::with_uids,
};

const PATH: &str = "/what-if";

#[derive(clap::Args)]
pub(super) struct SourceArgs {
    #[command(flatten)]
    manifests: ManifestArgs,
    #[command(flatten)]
    trust: TrustArgs,
    /// Admin port of one extender, instead of the first replica that answers
    #[arg(long, env = "TAUTLINE_EXTENDER")]
    url: Option<String>,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

impl SourceArgs {
    /// Reads the manifests, or of a cluster the offer, the pods of its namespace, and the nodes.
    pub(super) async fn items(&self, namespace: &str, offer: &str) -> Result<Vec<Item>> {
        if let Some(items) = self.manifests.read(None)? {
            return Ok(with_uids(items));
        }
        let client = self.replicas.cluster.client().await?;
        let found = fetch::get::<ConstraintPolicyOffer>(&client, namespace, offer).await?;
        let Some(found) = found else {
            return Ok(Vec::new());
        };
        let mut items = fetch::items::<Node>(&client, ListParams::default(), Item::Node).await?;
        items.push(Item::Offer(Box::new(fetch::parse(&found)?)));
        let scope = Scope::Namespace(namespace.to_owned());
        let pods = fetch::list::<Pod>(&client, &scope).await?;
        let pods = fetch::parse_readable::<Pod>(&pods).into_iter();
        items.extend(pods.map(|pod| Item::Pod(Box::new(pod))));
        Ok(items)
    }

    /// Asks the extender how it would decide on the pod now.
    pub(super) async fn ask(
        &self,
        items: &[Item],
        offer: &Offer,
        subject: &Subject,
    ) -> Result<WhatIf> {
        let body = serde_json::to_vec(&json!({"pod": subject.pod}))?;
        let answer = if self.manifests.is_given() {
            let trusted = self.trust.trusted_namespaces(OWN_NAMESPACE);
            let local = LocalScheduler::start(items, trusted).await?;
            let answer = ask_local(&local, offer, body).await;
            local.stop().await;
            answer?
        } else {
            let extenders = Component::Extender.app_names();
            let url = self.url.as_deref();
            self.replicas.post(url, extenders, PATH, body).await?
        };
        serde_json::from_slice(&answer).context("the extender's answer is not understood")
    }
}

async fn ask_local(local: &LocalScheduler, offer: &Offer, body: Vec<u8>) -> Result<bytes::Bytes> {
    for pod in &local.pending {
        if !selects(offer, &convert::pod(pod)) {
            local.place(pod).await?;
        }
    }
    let url = format!("{}{PATH}", local.admin_url());
    Http::default().post(&url, body).await
}
