//! The server as a whole: validated configuration, bound ports, tasks.

use std::{
    collections::BTreeSet,
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use tautline_gpu_admission::Names;
use tautline_runtime::{
    admin::{self, Readiness},
    events::{self, Events},
    feed::Feed,
    http, one,
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
    models, own,
    server::{self, Shared},
    slices,
};

/// What the server waits for beside its watches.
const CERTIFICATE: &str = "certificate";
const SLICES: &str = "slice policy";
/// After so long without a word of the slice policy pods are judged without it:
/// it never keeps pods from being created.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// Namespaces whose pods are never changed, also where a webhook's selector
    /// lets them through.
    pub exempt: BTreeSet<String>,
    /// Where the slice policy is.
    pub policy_namespace: String,
    /// Whole and shared cards.
    pub gpus: Names,
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
            exempt: ["kube-system".to_owned(), namespace.to_owned()].into(),
            policy_namespace: namespace.to_owned(),
            gpus: Names::default(),
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
    events: Arc<Events>,
    queue: events::Queue,
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
        readiness.expect(SLICES);
        let (events, queue) = Events::new();
        Ok(Self {
            events,
            queue,
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
        self.events.register(ours);
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
        let (queue, events_client, events_stop) = (self.queue, self.client.clone(), stop.clone());
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
        let policy = Arc::new(slices::Holder::new(Arc::clone(&self.events)));
        follow_slices(&self.config, &self.client, &policy, &self.readiness, tasks);
        let counters = slices::Counters::register(&mut self.registry);
        let (gpus, exempt) = (self.config.gpus.clone(), self.config.exempt.clone());
        let job = slices::job(gpus, policy, exempt, counters);
        let name = "gpu-slices";
        routes.insert("/mutate-v1-pod", Route { name, job });
        models::routes(&self.client, &mut routes);
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

/// Keeps the slice policy in step with its ConfigMap.
fn follow_slices(
    config: &Config,
    client: &Client,
    policy: &Arc<slices::Holder>,
    readiness: &Readiness,
    tasks: &mut Tasks,
) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &config.policy_namespace);
    let (policy, ready, stop) = (Arc::clone(policy), readiness.clone(), tasks.stop_token());
    tasks.spawn("slice policy", async move {
        let patience = async {
            tokio::time::sleep(PATIENCE).await;
            ready.done(SLICES);
            std::future::pending::<()>().await;
        };
        let see = |map| {
            policy.see(map);
            ready.done(SLICES);
        };
        tokio::select! {
            () = one::follow(api, slices::MAP, stop, see) => {}
            () = patience => {}
        }
        Ok(())
    });
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
