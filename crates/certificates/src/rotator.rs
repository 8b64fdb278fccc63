//! Rotates the certificate sets in a Secret; the first replica that writes a new set wins.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};
use tautline_runtime::{
    single_watch,
    tls::{ServerPem, ServerTls},
};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    certificate_set::{Ca, CertificateSet, CertificateSets, Request, Times},
    metrics::CertificateMetrics,
};

const GENERATIONS: &str = "generations.json";
const BUNDLE: &str = "ca.crt";
const CLIENT_CERT: &str = "client.crt";
const CLIENT_KEY: &str = "client.key";
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_secs(2);
const ALPN: [&str; 1] = ["http/1.1"];

/// The channels between the rotator and the server.
pub struct CertificateOutputs {
    /// Sends the CAs for clients in PEM; `None` until they are known.
    pub bundle: watch::Sender<Option<String>>,
    /// Receives the bundles that clients trust now. It is used with [`Ca::Published`] only.
    pub trusted: watch::Receiver<Vec<String>>,
    /// Sends the server's TLS settings with the first certificate. Later certificates replace it
    /// inside of these settings.
    pub tls: oneshot::Sender<ServerTls>,
}

impl CertificateOutputs {
    /// Creates the channels for [`Ca::Copied`], where no CA is published.
    pub fn copied(tls: oneshot::Sender<ServerTls>) -> Self {
        Self {
            bundle: watch::channel(None).0,
            trusted: watch::channel(Vec::new()).1,
            tls,
        }
    }
}

/// Generates a server's certificates, stores them in a Secret, and serves them.
pub struct CertificateRotator {
    /// The client that reads and writes the Secret. It must have the rights to get, list, watch and
    /// update the Secret by name, and to create it.
    pub client: Client,
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub secret: String,
    /// The certificates' common name.
    pub subject: &'static str,
    /// The DNS names and IP addresses that the certificates are valid for.
    pub names: BTreeSet<String>,
    /// The lifetime of certificates, and the way in which clients learn the CA.
    pub times: Times,
    /// True if only clients with a certificate of the CA are accepted. Set it with [`Ca::Copied`]
    /// only.
    pub client_auth: bool,
    /// The metrics of rotations and expiry.
    pub metrics: CertificateMetrics,
}

impl CertificateRotator {
    /// Runs until `stop`. The future is boxed, so that it is compiled here, not in each server.
    ///
    /// # Errors
    /// A certificate cannot be generated, for example because a name is invalid.
    pub fn run(
        self,
        published: CertificateOutputs,
        stop: CancellationToken,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        Box::pin(self.rotate(published, stop))
    }

    async fn rotate(self, published: CertificateOutputs, stop: CancellationToken) -> Result<()> {
        let CertificateOutputs {
            bundle,
            mut trusted,
            tls,
        } = published;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let (sender, mut seen) = watch::channel(None::<Option<Arc<Secret>>>);
        let (follow, name, end) = (api.clone(), self.secret.clone(), stop.clone());
        let watching = tokio::spawn(async move {
            let see = |secret: Option<Secret>| _ = sender.send_replace(Some(secret.map(Arc::new)));
            single_watch::watch_single(follow, &name, end, see).await;
        });
        let mut server = ServedCertificate::new(tls, self.client_auth);
        loop {
            let secret = seen.borrow_and_update().clone();
            let mut pause = self.tick();
            if let Some(secret) = secret {
                match self.step(&api, secret.as_deref()).await? {
                    Some(generations) => {
                        let now = now_unix();
                        bundle
                            .send_if_modified(|current| replace(current, generations.bundle(now)));
                        let in_webhooks = trusted.borrow_and_update().clone();
                        let trusts = |ca: &str| {
                            !in_webhooks.is_empty() && in_webhooks.iter().all(|h| h.contains(ca))
                        };
                        if let Some(served) = generations.served(now, self.times, trusts) {
                            server.serve(served, &self.metrics);
                        }
                    }
                    None => pause = pause.min(RETRY_PAUSE),
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
                changed = seen.changed() => changed.context("the watch on the Secret has ended")?,
                Ok(()) = trusted.changed() => {}
            }
        }
        _ = watching.await;
        Ok(())
    }

    fn tick(&self) -> Duration {
        let tick = match self.times.ca {
            Ca::Published { overlap } => overlap / 4,
            Ca::Copied => self.times.lifetime / 24,
        };
        tick.clamp(Duration::from_millis(200), Duration::from_secs(60))
    }

    /// Returns the sets, rotated if needed. If the write fails, for example because another replica
    /// was faster, returns the earlier sets, or `None` if no earlier set is valid. The next check
    /// tries again.
    async fn step(
        &self,
        api: &Api<Secret>,
        secret: Option<&Secret>,
    ) -> Result<Option<CertificateSets>> {
        let sets = secret.map(read).unwrap_or_default();
        let now = now_unix();
        let Some(names) = sets.needs_rotation(&self.names, now, self.times) else {
            return Ok(Some(sets));
        };
        let request = Request {
            subject: self.subject,
            names: &names,
            now_unix: now,
            times: self.times,
        };
        let made = CertificateSet::generate(request, &sets)?;
        let next = sets.with(made, now);
        let written = self.write(api, secret, &next, now).await;
        match written {
            Ok(()) => {
                self.metrics.rotation("made");
                tracing::info!(secret = %self.secret, "generated a new certificate");
                Ok(Some(next))
            }
            Err(error) => {
                self.metrics.rotation("refused");
                tracing::warn!(secret = %self.secret, error = format!("{error:#}"), "cannot renew the certificate");
                Ok((!sets.bundle(now).is_empty()).then_some(sets))
            }
        }
    }

    async fn write(
        &self,
        api: &Api<Secret>,
        before: Option<&Secret>,
        next: &CertificateSets,
        now: u64,
    ) -> Result<()> {
        let mut entries = vec![
            (GENERATIONS, serde_json::to_string(next)?),
            (BUNDLE, next.bundle(now)),
        ];
        if let Some((_, kept)) = next.kept_ca(now) {
            entries.push((CLIENT_CERT, kept.client_cert.clone()));
            entries.push((CLIENT_KEY, kept.client_key.clone()));
        }
        let bytes = |(key, value): (&str, String)| (key.to_owned(), ByteString(value.into_bytes()));
        let data: BTreeMap<_, _> = entries.into_iter().map(bytes).collect();
        let params = PostParams::default();
        let call = async {
            match before {
                None => {
                    let labels = [("app.kubernetes.io/part-of", "tautline")];
                    let own = |(k, v): (&str, &str)| (k.to_owned(), v.to_owned());
                    let metadata = ObjectMeta {
                        name: Some(self.secret.clone()),
                        namespace: Some(self.namespace.clone()),
                        labels: Some(labels.into_iter().map(own).collect()),
                        ..ObjectMeta::default()
                    };
                    let fresh = Secret {
                        metadata,
                        data: Some(data),
                        ..Secret::default()
                    };
                    api.create(&params, &fresh).await
                }
                Some(before) => {
                    // The resourceVersion makes the write fail if another replica has written
                    // before.
                    let mut secret = before.clone();
                    secret.data.get_or_insert_default().extend(data);
                    api.replace(&self.secret, &params, &secret).await
                }
            }
        };
        tautline_runtime::api_call::within(WRITE_TIMEOUT, call).await?;
        Ok(())
    }
}

fn read(secret: &Secret) -> CertificateSets {
    let Some(json) = secret.data.as_ref().and_then(|d| d.get(GENERATIONS)) else {
        return CertificateSets::default();
    };
    serde_json::from_slice(&json.0).unwrap_or_else(|error| {
        tracing::warn!(%error, "the Secret's {GENERATIONS} cannot be parsed; generating a new certificate");
        CertificateSets::default()
    })
}

struct ServedCertificate {
    first: Option<oneshot::Sender<ServerTls>>,
    tls: Option<ServerTls>,
    client_auth: bool,
    served: String,
}

impl ServedCertificate {
    fn new(first: oneshot::Sender<ServerTls>, client_auth: bool) -> Self {
        Self {
            first: Some(first),
            tls: None,
            client_auth,
            served: String::new(),
        }
    }

    fn serve(&mut self, generation: &CertificateSet, metrics: &CertificateMetrics) {
        if generation.cert == self.served {
            return;
        }
        let pem = ServerPem {
            cert: &generation.cert,
            key: &generation.key,
            client_ca: self.client_auth.then_some(generation.ca.as_str()),
            alpn: &ALPN,
        };
        let given = match &self.tls {
            Some(tls) => tls.replace_pem(pem),
            None => ServerTls::from_pem(pem).map(|tls| {
                self.tls = Some(tls.clone());
                // The send fails only after the server has ended.
                if let Some(first) = self.first.take() {
                    _ = first.send(tls);
                }
            }),
        };
        match given {
            Ok(()) => {
                self.served.clone_from(&generation.cert);
                metrics.expires(generation.ends_unix);
                tracing::info!(
                    ends_unix = generation.ends_unix,
                    "serving a new certificate"
                );
            }
            Err(error) => tracing::error!(%error, "the certificate cannot be served"),
        }
    }
}

fn replace(current: &mut Option<String>, new: String) -> bool {
    let new = Some(new);
    let changed = *current != new;
    *current = new;
    changed
}

fn now_unix() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
