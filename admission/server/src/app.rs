//! Assembles the admission server: its ports, watches, webhook handlers, certificates and
//! background tasks.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use kube::Client;
use prometheus_client::registry::Registry;
use tautline_certificates::{CertificateMetrics, CertificateOutputs, CertificateRotator};
use tautline_runtime::{
    admin::{self, Readiness},
    cluster::Cluster,
    cluster_store::ClusterStore,
    events::{self, Events},
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
    config::{Certificate, Config},
    constraint_kinds, governed, gpu_sharing,
    metrics::{Metrics, PREFIX},
    model_registry, mutations,
    review::{Route, Routes, except_in, sync_handler},
    server::{self, Shared},
    watches, webhook_writer,
};

const CERTIFICATE: &str = "certificate";

/// The admission server, with bound ports. [`App::spawn`] starts it.
pub struct App {
    config: Config,
    cluster: Cluster,
    client: Client,
    listener: TcpListener,
    admin: TcpListener,
    registry: Registry,
    readiness: Readiness,
    events: Arc<Events>,
    queue: events::Queue,
}

impl App {
    /// Binds both ports. Fails if an address cannot be bound.
    pub async fn build(config: Config, cluster: Cluster) -> Result<Self> {
        let (listener, admin) = (
            admin::bind(config.listen).await?,
            admin::bind(config.admin).await?,
        );
        let readiness = Readiness::default();
        readiness.expect(CERTIFICATE);
        readiness.expect(watches::SLICE_POLICY);
        readiness.expect(watches::PARAMS);
        let (events, queue) = Events::new();
        Ok(Self {
            events,
            queue,
            config,
            client: cluster.client().clone(),
            cluster,
            listener,
            admin,
            registry: Registry::default(),
            readiness,
        })
    }

    /// Returns the address of the webhooks, with the port that was chosen for port 0.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Returns the address of `/livez`, `/readyz` and `/metrics`.
    pub fn admin_address(&self) -> Result<SocketAddr> {
        Ok(self.admin.local_addr()?)
    }

    /// Returns the readiness, which is complete when the certificate and the watched objects are
    /// loaded.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Starts the tasks of the server. Fails if the certificate files cannot be loaded.
    pub fn spawn(mut self, tasks: &mut Tasks) -> Result<()> {
        let stop = tasks.stop_token();
        let registry = self.registry.sub_registry_with_prefix("tautline");
        let metrics = Metrics::registered("", registry);
        let certificate_metrics = CertificateMetrics::registered(PREFIX, registry);
        let port_metrics = http::PortMetrics::default();
        port_metrics.connections.register(PREFIX, registry);
        port_metrics.register(PREFIX, registry);
        let watch_metrics = WatchMetrics::default();
        watch_metrics.register("", registry);
        self.events.register(registry);
        let gauges = gpu_sharing::Gauges::registered("", registry);
        let policy_counters = mutations::Counters::registered("", registry);
        let store = ClusterStore::default();
        let watch = Watch {
            cluster: &self.cluster,
            store: &store,
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
        let mut route = |path, name, handler| _ = routes.insert(path, Route { name, handler });
        let exempt = || self.config.exempt.clone();
        route(
            "/validate-constraint",
            "validate-constraint",
            constraint_kinds::validate_handler(
                store.clone(),
                self.client.clone(),
                self.config.trusted.clone(),
            ),
        );
        route(
            "/mutate-constraint",
            "mutate-constraint",
            sync_handler(constraint_kinds::set_defaults),
        );
        if self.config.governed {
            let ungated = governed::UngatedPods {
                store: store.clone(),
                client: self.client.clone(),
                events: Arc::clone(&self.events),
            };
            tasks.spawn_until_stop("ungated pods", ungated.run());
        }
        let changes = governed::Changes {
            gate: self.config.governed,
            scheduler_name: self.config.scheduler_name.clone(),
        };
        if changes.gate || changes.scheduler_name.is_some() {
            let handler =
                sync_handler(move |request| governed::review(request, &store.snapshot(), &changes));
            route("/mutate-governed", "governed", except_in(exempt(), handler));
        }
        let policy = Arc::new(gpu_sharing::PolicyStore::new(
            Arc::clone(&self.events),
            gauges,
        ));
        watches::slice_policy(&self.config, &self.client, &policy, &self.readiness, tasks);
        let castslice = self.registry.sub_registry_with_prefix(gpu_sharing::PREFIX);
        let counters = gpu_sharing::Counters::registered("", castslice);
        let handler = gpu_sharing::handler(self.config.gpus.clone(), policy, counters);
        route("/mutate-v1-pod", "gpu-slices", except_in(exempt(), handler));
        let mutations = watches::mutation_policies(
            &self.config,
            &self.client,
            policy_counters,
            &self.events,
            &self.readiness,
            tasks,
        );
        let active = mutations.store.changes();
        let handler = except_in(exempt(), mutations.handler());
        route("/mutate-policies", "mutation-policies", handler);
        model_registry::routes(&self.client, &mut routes);
        let tls = certificates(
            &self.config,
            &self.client,
            (&metrics, certificate_metrics),
            active,
            tasks,
        )?;
        let most = self.config.max_body_bytes;
        let port = http::Port::new(self.config.limits, most, port_metrics);
        let shared = Arc::new(Shared {
            config: self.config,
            routes,
            metrics,
            readiness: self.readiness.clone(),
        });
        let registry = Arc::new(self.registry);
        let no_routes = |_| std::future::ready(None);
        tasks.spawn(
            "admin",
            admin::serve(
                self.admin,
                registry,
                self.readiness.clone(),
                no_routes,
                stop.clone(),
            ),
        );
        let (listener, readiness) = (self.listener, self.readiness);
        tasks.spawn("webhooks", async move {
            let tls = tokio::select! {
                tls = tls => tls.context("no certificate was generated")?,
                () = stop.cancelled() => return Ok(()),
            };
            readiness.done(CERTIFICATE);
            // Before the first sync every pod would look ungoverned.
            tokio::select! {
                () = readiness.wait() => {}
                () = stop.cancelled() => return Ok(()),
            }
            http::serve(listener, Some(tls), server::stack(shared), port, stop).await
        });
        Ok(())
    }
}

fn certificates(
    config: &Config,
    client: &Client,
    (metrics, certificate_metrics): (&Metrics, CertificateMetrics),
    active: watch::Receiver<Arc<mutations::ActivePolicies>>,
    tasks: &mut Tasks,
) -> Result<oneshot::Receiver<ServerTls>> {
    let (sender, tls) = oneshot::channel();
    let stop = tasks.stop_token();
    let (bundle, bundle_receiver) = watch::channel(None);
    let (trusted_sender, trusted) = watch::channel(Vec::new());
    let write = webhook_writer::run(
        client.clone(),
        bundle_receiver,
        active,
        trusted_sender,
        metrics.clone(),
    );
    tasks.spawn_until_stop("webhook configurations", write);
    match &config.certificate {
        Certificate::Files(files) => {
            let alpn = vec!["http/1.1"];
            let loaded = ServerTls::load(ServerFiles {
                alpn,
                ..files.clone()
            })?;
            let follow = loaded.clone().watch_files(stop);
            tasks.spawn("TLS", async move {
                let _bundle = bundle;
                follow.await
            });
            _ = sender.send(loaded);
        }
        Certificate::Own {
            secret,
            names,
            times,
        } => {
            let rotator = CertificateRotator {
                client: client.clone(),
                namespace: config.namespace.clone(),
                secret: secret.clone(),
                subject: "tautline-admission",
                names: names.clone(),
                times: *times,
                client_auth: false,
                metrics: certificate_metrics,
            };
            let published = CertificateOutputs {
                bundle,
                trusted,
                tls: sender,
            };
            tasks.spawn("certificates", rotator.run(published, stop));
        }
    }
    Ok(tls)
}
