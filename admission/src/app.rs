//! The server as a whole: validated configuration, bound ports, tasks.

use std::{
    collections::BTreeSet,
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use kube::Client;
use prometheus_client::registry::Registry;
use tautline_runtime::{
    admin::{self, Readiness},
    events,
    feed::Feed,
    http,
    tasks::Tasks,
    tls::{ServerFiles, ServerTls},
    watch::{Watch, WatchMetrics},
};
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
};

use crate::{
    bundle,
    certificates::{Keeper, Published, Times},
    governed,
    job::{Route, Routes},
    metrics::Metrics,
    own,
    server::{self, Shared},
};

/// What the server waits for beside its watches.
const CERTIFICATE: &str = "certificate";

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Made here, kept in a Secret of our namespace, for these names.
    Own {
        /// The Secret.
        secret: String,
        /// DNS names and IP addresses.
        names: BTreeSet<String>,
        /// How long things last.
        times: Times,
    },
    /// Files that somebody else renews, who also keeps the `caBundle`.
    Files(ServerFiles),
}

/// How the server serves.
#[derive(Clone, Debug)]
pub struct Config {
    /// HTTPS.
    pub listen: SocketAddr,
    /// Where operators look.
    pub admin: SocketAddr,
    /// The server's.
    pub certificate: Certificate,
    /// Ours.
    pub namespace: String,
    /// A review holds the object twice, and the API server takes up to 3 MiB of each.
    pub max_body_bytes: usize,
    /// Reviews under way; more wait.
    pub concurrency: usize,
    /// Below the webhooks' `timeoutSeconds`.
    pub deadline: Duration,
    /// Whether pods that an offer selects ask for the governed resource.
    pub governed: bool,
}

impl Config {
    /// The defaults, in `namespace`, reached by the Service `service`.
    pub fn new(namespace: &str, service: &str) -> Self {
        let host = format!("{service}.{namespace}.svc");
        Self {
            listen: (Ipv6Addr::UNSPECIFIED, 8443).into(),
            admin: (Ipv6Addr::UNSPECIFIED, 9090).into(),
            certificate: Certificate::Own {
                secret: "tautline-admission-tls".to_owned(),
                names: [host.clone(), format!("{host}.cluster.local")].into(),
                times: Times::default(),
            },
            namespace: namespace.to_owned(),
            max_body_bytes: 8 << 20,
            concurrency: 64,
            deadline: Duration::from_secs(8),
            governed: false,
        }
    }
}

/// A server whose ports are bound.
pub struct App {
    config: Config,
    client: Client,
    listener: TcpListener,
    admin: TcpListener,
    registry: Registry,
    readiness: Readiness,
}

impl App {
    /// # Errors
    /// An address that is taken.
    pub async fn build(config: Config, client: Client) -> Result<Self> {
        let (listener, admin) = (
            admin::bind(config.listen).await?,
            admin::bind(config.admin).await?,
        );
        let readiness = Readiness::default();
        readiness.expect(CERTIFICATE);
        Ok(Self {
            config,
            client,
            listener,
            admin,
            registry: Registry::default(),
            readiness,
        })
    }

    /// Where the API server reaches it.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Where operators reach it.
    pub fn admin_address(&self) -> Result<SocketAddr> {
        Ok(self.admin.local_addr()?)
    }

    /// What it waits for.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Starts everything as tasks of a process.
    ///
    /// # Errors
    /// TLS files that do not load.
    pub fn spawn(mut self, tasks: &mut Tasks) -> Result<()> {
        let stop = tasks.stop_token();
        let ours = self.registry.sub_registry_with_prefix("tautline");
        let metrics = Metrics::register(ours);
        let watch_metrics = WatchMetrics::default();
        watch_metrics.register(ours);
        let (events, queue) = events::Events::new();
        events.register(ours);
        let feed = Feed::default();
        let watch = Watch {
            client: &self.client,
            feed: &feed,
            metrics: &watch_metrics,
            readiness: &self.readiness,
        };
        watch.pods(tasks);
        watch.services(tasks);
        watch.endpoint_slices(tasks);
        watch.rules(tasks);
        let (events_client, events_stop) = (self.client.clone(), stop.clone());
        tasks.spawn("events", async move {
            queue
                .write(events_client, "tautline-admission", events_stop)
                .await;
            Ok(())
        });

        let tls = certificates(&self.config, &self.client, &metrics, tasks)?;
        let mut routes = Routes::new();
        let mut route = |path, name, job| _ = routes.insert(path, Route { name, job });
        route(
            "/validate-constraint",
            "validate-constraint",
            own::validate(feed.clone()),
        );
        route("/mutate-constraint", "mutate-constraint", own::default());
        if self.config.governed {
            route("/mutate-governed", "governed", governed::job(feed.clone()));
        }
        let shared = Arc::new(Shared {
            config: self.config,
            routes,
            metrics,
            readiness: self.readiness.clone(),
        });
        let registry = Arc::new(self.registry);
        let nothing = |_| std::future::ready(None);
        tasks.spawn(
            "admin",
            admin::serve(
                self.admin,
                registry,
                self.readiness.clone(),
                nothing,
                stop.clone(),
            ),
        );
        let (listener, readiness) = (self.listener, self.readiness);
        tasks.spawn("webhooks", async move {
            let tls = tokio::select! {
                tls = tls => tls.context("there is no certificate")?,
                () = stop.cancelled() => return Ok(()),
            };
            readiness.done(CERTIFICATE);
            // Until the first sync every pod would look ungoverned; connections wait
            // in the listen queue for so long.
            tokio::select! {
                () = readiness.wait() => {}
                () = stop.cancelled() => return Ok(()),
            }
            http::serve(listener, Some(tls), server::stack(shared), stop).await
        });
        Ok(())
    }
}

/// The server's TLS, once there is a certificate.
fn certificates(
    config: &Config,
    client: &Client,
    metrics: &Metrics,
    tasks: &mut Tasks,
) -> Result<oneshot::Receiver<ServerTls>> {
    let (sender, tls) = oneshot::channel();
    let stop = tasks.stop_token();
    match &config.certificate {
        Certificate::Files(files) => {
            let alpn = vec!["http/1.1"];
            let loaded = ServerTls::load(ServerFiles {
                alpn,
                ..files.clone()
            })?;
            tasks.spawn("TLS", loaded.clone().follow(stop));
            // The receiver is still here.
            _ = sender.send(loaded);
        }
        Certificate::Own {
            secret,
            names,
            times,
        } => {
            let (bundle, wanted) = watch::channel(String::new());
            let (held, trusted) = watch::channel(Vec::new());
            let keeper = Keeper {
                client: client.clone(),
                namespace: config.namespace.clone(),
                secret: secret.clone(),
                names: names.clone(),
                times: *times,
                metrics: metrics.clone(),
            };
            let published = Published {
                bundle,
                trusted,
                tls: sender,
            };
            tasks.spawn("certificates", keeper.run(published, stop.clone()));
            let keep = bundle::keep(client.clone(), wanted, held, metrics.clone(), stop);
            tasks.spawn("webhook configurations", async move {
                keep.await;
                Ok(())
            });
        }
    }
    Ok(tls)
}
