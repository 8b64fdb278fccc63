//! The admission webhooks, called by the real API server over real TLS.

mod api_server_away;
mod audit_log;
mod certificate_files;
mod certificate_rotation;
mod failure_policy;
mod gate;
mod gpu_sharing;
mod model_registry;
mod mutation_policies;
mod own_resources;
mod policy_authors;
mod reapply;
mod remade_definition;
mod restart;

use std::process::Command;

use anyhow::{Result, bail};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::{Api, Client, api::ListParams};
use serde_json::{Value, json};
use tautline_tests::{
    PATIENCE,
    control_plane::ControlPlane,
    eventually, objects, root,
    servers::{Server, binary},
};

/// A control plane with our kinds and roles, and an admission server that it calls.
pub struct AdmissionCluster {
    pub plane: ControlPlane,
    pub server: Server,
}

impl AdmissionCluster {
    /// With the webhook configurations of these names.
    pub async fn start(jobs: &[&str], args: &[&str]) -> Result<Self> {
        let admitting = Self::on(ControlPlane::start().await?, args).await?;
        admitting.install_webhooks(jobs, &admitting.url()).await?;
        Ok(admitting)
    }

    /// On a running control plane, without webhook configurations.
    pub async fn on(plane: ControlPlane, args: &[&str]) -> Result<Self> {
        objects::apply_kustomization(&plane.client, &root().join("deploy")).await?;
        let server = Server::admission(&plane, "admission", args).await?;
        Ok(Self { plane, server })
    }

    /// The server's URL for the API server.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.server.port)
    }

    pub fn client(&self) -> &Client {
        &self.plane.client
    }

    /// Applies the webhook configurations of `jobs`, and waits until they hold a CA.
    pub async fn install_webhooks(&self, jobs: &[&str], url: &str) -> Result<()> {
        for document in rendered(jobs, url)? {
            objects::apply_one(self.client(), document).await?;
        }
        let check = async || {
            let bundles = self.bundles().await.ok()?;
            (!bundles.is_empty() && bundles.iter().all(|b| !b.is_empty())).then_some(())
        };
        let what = "the configurations hold a CA";
        eventually(what, PATIENCE, check, async || self.state()).await;
        Ok(())
    }

    /// The `caBundle` of every webhook.
    pub async fn bundles(&self) -> Result<Vec<String>> {
        let all = ListParams::default();
        let mutating = Api::<MutatingWebhookConfiguration>::all(self.client().clone());
        let validating = Api::<ValidatingWebhookConfiguration>::all(self.client().clone());
        let mut clients = Vec::new();
        for configuration in mutating.list(&all).await? {
            clients.extend(
                configuration
                    .webhooks
                    .unwrap_or_default()
                    .into_iter()
                    .map(|h| h.client_config),
            );
        }
        for configuration in validating.list(&all).await? {
            clients.extend(
                configuration
                    .webhooks
                    .unwrap_or_default()
                    .into_iter()
                    .map(|h| h.client_config),
            );
        }
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(clients
            .into_iter()
            .map(|c| c.ca_bundle.map_or_else(String::new, |b| text(b.0)))
            .collect())
    }

    /// The logs and state for a failed test.
    pub fn state(&self) -> String {
        self.server.process.tail() + &self.plane.logs()
    }

    /// Waits until the server's metric, the start of its line, is at least `least`.
    pub async fn wait_for_metric(&self, name: &str, least: f64) {
        let check = async || (self.server.metric(name).await >= least).then_some(());
        let what = format!("{name} reaches {least}");
        eventually(&what, PATIENCE, check, async || {
            self.server.admin("/metrics").await.unwrap_or_default().1 + &self.state()
        })
        .await;
    }
}

/// The webhook configurations of some jobs, with `url` in place of the Service.
pub fn rendered(jobs: &[&str], url: &str) -> Result<Vec<Value>> {
    let out = Command::new(binary()?)
        .args(["admission", "--render", "--url", url])
        .output()?;
    if !out.status.success() {
        bail!("{}", String::from_utf8_lossy(&out.stderr));
    }
    let mut all: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(out.stdout)?)?;
    all.retain(|document| jobs.iter().any(|job| document["metadata"]["name"] == *job));
    Ok(all)
}
