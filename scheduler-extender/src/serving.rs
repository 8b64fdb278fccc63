//! TLS of the scheduler's port: none, from files, or generated.

use std::future::Future;

use anyhow::{Context, Result};
use kube::Client;
use prometheus_client::registry::Registry;
use tautline_certificates::{CertificateMetrics, CertificateOutputs, CertificateRotator};
use tautline_runtime::{
    tasks::Tasks,
    tls::{ServerFiles, ServerTls},
};
use tokio::sync::oneshot;

use crate::{config::Certificate, metrics::PREFIX};

pub(crate) enum Serving {
    Plain,
    Files(ServerTls),
    Generated(Box<CertificateRotator>),
}

impl Serving {
    /// Loads files. Fails if they do not load, or if a generated certificate has no cluster for its
    /// Secret.
    pub(crate) fn new(
        certificate: Option<&Certificate>,
        client: Option<&Client>,
        registry: &mut Registry,
    ) -> Result<Self> {
        Ok(match certificate {
            None => Self::Plain,
            Some(Certificate::Files(files)) => Self::Files(ServerTls::load(ServerFiles {
                alpn: vec!["http/1.1"],
                ..files.clone()
            })?),
            Some(Certificate::Generated {
                namespace,
                secret,
                names,
                times,
                client_auth,
            }) => Self::Generated(Box::new(CertificateRotator {
                client: client
                    .context("a generated certificate needs a cluster for its Secret")?
                    .clone(),
                namespace: namespace.clone(),
                secret: secret.clone(),
                subject: "tautline-extender",
                names: names.clone(),
                times: *times,
                client_auth: *client_auth,
                metrics: CertificateMetrics::registered(PREFIX, registry),
            })),
        })
    }

    /// Starts the task that renews the certificate. The returned future waits for the first
    /// certificate.
    pub(crate) fn spawn(
        self,
        tasks: &mut Tasks,
    ) -> impl Future<Output = Result<Option<ServerTls>>> + Send + use<> {
        let stop = tasks.stop_token();
        let (sender, first) = oneshot::channel();
        let ready = match self {
            Self::Plain => Some(None),
            Self::Files(tls) => {
                tasks.spawn("TLS", tls.clone().watch_files(stop));
                Some(Some(tls))
            }
            Self::Generated(rotator) => {
                let outputs = CertificateOutputs::copied(sender);
                tasks.spawn("certificates", rotator.run(outputs, stop));
                None
            }
        };
        async move {
            match ready {
                Some(tls) => Ok(tls),
                None => Ok(Some(first.await.context("no certificate was generated")?)),
            }
        }
    }
}
