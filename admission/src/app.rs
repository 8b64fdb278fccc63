//! The server as a whole: validated configuration, bound ports, tasks.

use std::{
    collections::BTreeSet,
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, core::DeserializeGuard};
use prometheus_client::registry::Registry;
use tautline_api::{MutationPolicy, MutationPolicyBinding};
use tautline_gpu_admission::Names;
use tautline_runtime::{
    admin::{self, Readiness},
    events::{self, Events},
    feed::Feed,
    http, one,
    tasks::Tasks,
    tls::{ServerFiles, ServerTls},
    watch::{Watch, WatchMetrics, list_of},
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
    models,
    mutations::{self, Mutations, Raw},
    own,
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
        let policy_counters = mutations::Counters::register(ours);
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
        let job = follow_mutations(
            &self.config,
            &self.client,
            policy_counters,
            &self.events,
            &self.readiness,
            tasks,
        );
        let in_force = job.store.changes();
        let name = "mutation-policies";
        routes.insert("/mutate-policies", Route { name, job });
        let tls = certificates(&self.config, &self.client, &metrics, in_force, tasks)?;
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

/// Keeps the mutation policies in step, and what they need of the cluster.
fn follow_mutations(
    config: &Config,
    client: &Client,
    counters: mutations::Counters,
    events: &Arc<Events>,
    readiness: &Readiness,
    tasks: &mut Tasks,
) -> Arc<Mutations> {
    let store = Arc::new(mutations::Store::new(Arc::clone(events), counters.clone()));
    let cluster = Arc::new(mutations::Cluster::new(client.clone()));
    let (policies, bindings) = (Arc::clone(&store), Arc::clone(&store));
    let api: Api<DeserializeGuard<Raw<MutationPolicy>>> = Api::all(client.clone());
    list_of(api, None, readiness, tasks, move |all| {
        policies.see_policies(&all)
    });
    let api: Api<DeserializeGuard<Raw<MutationPolicyBinding>>> = Api::all(client.clone());
    list_of(api, None, readiness, tasks, move |all| {
        bindings.see_bindings(&all)
    });
    let stop = tasks.stop_token();
    let (namespaces, end) = (Arc::clone(&cluster), stop.clone());
    tasks.spawn("watch namespaces", async move {
        namespaces.follow_namespaces(end).await;
        Ok(())
    });
    let (schemas, end) = (Arc::clone(&cluster), stop.clone());
    tasks.spawn("types", async move {
        schemas.schemas.follow(end).await;
        Ok(())
    });
    let (params, client, in_force) = (Arc::clone(&cluster), client.clone(), store.changes());
    tasks.spawn("parameters", async move {
        params.params.follow(client, in_force, stop).await;
        Ok(())
    });
    Arc::new(Mutations {
        store,
        cluster,
        exempt: config.exempt.clone(),
        counters,
        // What is left is for the answer.
        deadline: config.deadline.mul_f64(0.75),
    })
}

/// The server's TLS, once there is a certificate.
fn certificates(
    config: &Config,
    client: &Client,
    metrics: &Metrics,
    in_force: watch::Receiver<Arc<mutations::InForce>>,
    tasks: &mut Tasks,
) -> Result<oneshot::Receiver<ServerTls>> {
    let (sender, tls) = oneshot::channel();
    let stop = tasks.stop_token();
    let (bundle, wanted) = watch::channel(None);
    let (held, trusted) = watch::channel(Vec::new());
    let inputs = bundle::Inputs {
        bundle: wanted,
        in_force,
    };
    let keep = bundle::keep(client.clone(), inputs, held, metrics.clone(), stop.clone());
    tasks.spawn("webhook configurations", async move {
        keep.await;
        Ok(())
    });
    match &config.certificate {
        Certificate::Files(files) => {
            let alpn = vec!["http/1.1"];
            let loaded = ServerTls::load(ServerFiles {
                alpn,
                ..files.clone()
            })?;
            let follow = loaded.clone().follow(stop);
            tasks.spawn("TLS", async move {
                // Nothing else says what is to be trusted: whoever renews the files does.
                let _bundle = bundle;
                follow.await
            });
            // The receiver is still here.
            _ = sender.send(loaded);
        }
        Certificate::Own {
            secret,
            names,
            times,
        } => {
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
            tasks.spawn("certificates", keeper.run(published, stop));
        }
    }
    Ok(tls)
}
