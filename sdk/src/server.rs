//! A provider's server: gRPC with health and reflection, TLS, metrics, and a
//! shutdown that finishes calls under way.

use std::{
    convert::Infallible,
    future::Future,
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use prometheus_client::registry::Registry;
use tautline_proto::{
    FILE_DESCRIPTOR_SET, RULE_PROVIDER_PORT, allocator::allocator_server::AllocatorServer,
};
use tautline_runtime::{
    admin::{self, Readiness},
    http::{Body as AdminBody, Limits, Port, PortMetrics, Protocol},
    limits,
    tasks::{self, Tasks},
    tls::{ServerFiles, ServerTls},
};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{
    body::Body,
    codegen::{
        Service,
        http::{Request, Response},
    },
    server::NamedService,
    service::{Routes, RoutesBuilder},
};
use tonic_health::ServingStatus;

use crate::{
    Allocator, RuleProvider,
    calls::{Socket, TrackedRoutes},
    metrics::Metrics,
    pages::{AdminPage, Pages},
    service::{AllocatorService, ReadinessGate, RuleService},
};

/// A question is at most 16 MiB.
const LARGEST_BYTES: usize = 16 << 20;
/// A call that answers once ends after this long: no half-sent question stays. Streams go on.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How a provider serves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where gRPC is served; port 0 picks a free one. Default: port 5309 of
    /// every address.
    pub listen: SocketAddr,
    /// Where `/livez`, `/readyz` and `/metrics` are served, if at all.
    pub admin: Option<SocketAddr>,
    /// TLS, with certificates that reload.
    pub tls: Option<ServerFiles>,
    /// Connections that may be open at once. Beyond them the idlest connection of the
    /// address that has the most is closed; one with a call under way is not. Default: 1,024.
    pub connections: usize,
}

impl Default for Config {
    fn default() -> Self {
        let listen = SocketAddr::from((Ipv6Addr::UNSPECIFIED, RULE_PROVIDER_PORT));
        Self {
            listen,
            admin: None,
            tls: None,
            connections: 1024,
        }
    }
}

impl Config {
    fn limits(&self) -> Limits {
        Limits {
            connections: self.connections,
            // Many agents may come back at once.
            handshakes: (self.connections / 4).max(128),
            // HTTP/2 has pings.
            idle: None,
            ..Limits::default()
        }
    }
}

/// Serves `provider` until SIGTERM or Ctrl-C.
///
/// # Errors
/// The address is taken, or TLS files do not load.
pub async fn serve(provider: impl RuleProvider, config: Config) -> Result<()> {
    limits::raise_open_files();
    let mut tasks = Tasks::default();
    let server = Server::bind(config).await?;
    tracing::info!(address = %server.address(), "rule provider listening");
    server.spawn(Arc::new(provider), &mut tasks)?;
    tasks.run(tasks::shutdown_signal()).await
}

/// A provider's server whose ports are bound, so that nobody is refused.
pub struct Server {
    config: Config,
    listener: TcpListener,
    admin: Option<TcpListener>,
    address: SocketAddr,
    linger: Option<CancellationToken>,
    pages: Pages,
    routes: RoutesBuilder,
    /// Names of the services, for their health.
    names: Vec<&'static str>,
    /// Metrics of the server; a provider may add its own.
    pub registry: Registry,
    /// What the provider waits for before it is ready. Health follows it, and
    /// questions get UNAVAILABLE until then.
    pub readiness: Readiness,
}

impl Server {
    /// Binds the ports.
    ///
    /// # Errors
    /// An address that is taken.
    pub async fn bind(config: Config) -> Result<Self> {
        let listener = admin::bind(config.listen).await?;
        let admin = match config.admin {
            Some(address) => Some(admin::bind(address).await?),
            None => None,
        };
        let address = listener.local_addr()?;
        let (registry, readiness) = (Registry::with_prefix("tautline"), Readiness::default());
        Ok(Self {
            config,
            listener,
            admin,
            address,
            linger: None,
            pages: Pages::default(),
            routes: RoutesBuilder::default(),
            names: Vec::new(),
            registry,
            readiness,
        })
    }

    /// Where gRPC is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the admin port is, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref()?.local_addr().ok()
    }

    /// Answers further paths of the admin port, from the path and the query (without
    /// its `?`; neither is decoded); `None`: there is no such page.
    pub fn admin_pages<F>(&mut self, answer: impl Fn(String, String) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Option<AdminPage>> + Send + 'static,
    {
        self.pages = Pages::new(answer);
    }

    /// Goes on with gRPC after the stop until this token is cancelled too: for
    /// those who must hear callers out (the process waits for it, but not for ever).
    pub fn drain_until(&mut self, until: CancellationToken) {
        self.linger = Some(until);
    }

    /// Serves a further gRPC service (a generated `...Server`) on the same port.
    pub fn add_service<S>(&mut self, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        self.routes.add_service(service);
        self.names.push(S::NAME);
    }

    /// Serves as tasks of a process.
    ///
    /// # Errors
    /// TLS files that do not load.
    pub fn spawn<P: RuleProvider>(mut self, provider: Arc<P>, tasks: &mut Tasks) -> Result<()> {
        let gate = self.gate();
        self.add_service(RuleService::new(provider, gate));
        self.launch(tasks)
    }

    /// Serves an allocator beside the provider.
    ///
    /// # Errors
    /// TLS files that do not load.
    pub fn spawn_with_allocator<P: RuleProvider, A: Allocator>(
        mut self,
        provider: Arc<P>,
        allocator: Arc<A>,
        tasks: &mut Tasks,
    ) -> Result<()> {
        let gate = self.gate();
        self.add_service(RuleService::new(provider, gate.clone()));
        self.add_service(AllocatorServer::new(AllocatorService { allocator, gate }));
        self.launch(tasks)
    }

    fn gate(&mut self) -> ReadinessGate {
        ReadinessGate {
            readiness: self.readiness.clone(),
            metrics: Metrics::register(&mut self.registry),
        }
    }

    fn launch(mut self, tasks: &mut Tasks) -> Result<()> {
        let mut names = self.names;
        let stop = tasks.stop_token();
        let (health, health_service) = tonic_health::server::health_reporter();
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .build_v1()
            .context("the contracts' descriptors do not load")?;
        let routes = self
            .routes
            .routes()
            .add_service(health_service)
            .add_service(reflection);

        let port_metrics = PortMetrics::default();
        port_metrics.register_connections("ruleprovider_", &mut self.registry);
        let port = Port::new(self.config.limits(), LARGEST_BYTES, port_metrics);

        let readiness = self.readiness.clone();
        let ready_stop = stop.clone();
        // Overall health is the service "".
        names.push("");
        tasks.spawn("health", async move {
            let say = async |status| {
                for name in &names {
                    health.set_service_status(name, status).await;
                }
            };
            say(ServingStatus::NotServing).await;
            tokio::select! { () = readiness.wait() => {}, () = ready_stop.cancelled() => return Ok(()) }
            say(ServingStatus::Serving).await;
            ready_stop.cancelled().await;
            say(ServingStatus::NotServing).await;
            Ok(())
        });
        if let Some(listener) = self.admin {
            let registry = Arc::new(self.registry);
            let pages = self.pages;
            let more = move |request: Request<AdminBody>| {
                let uri = request.uri();
                let query = uri.query().unwrap_or_default().to_owned();
                pages.clone().answer(uri.path().to_owned(), query)
            };
            tasks.spawn(
                "admin",
                admin::serve(listener, registry, self.readiness, more, stop.clone()),
            );
        }
        let tls = match self.config.tls {
            Some(files) => Some(ServerTls::load(ServerFiles {
                alpn: vec!["h2"],
                ..files
            })?),
            None => None,
        };
        if let Some(tls) = tls.clone() {
            tasks.spawn("tls", tls.watch_files(stop.clone()));
        }
        let closing = CancellationToken::new();
        let served = listen(routes, (self.listener, port), tls, closing.clone());
        tasks.spawn("grpc", async move {
            let close = async {
                stop.cancelled().await;
                if let Some(linger) = self.linger {
                    linger.cancelled().await;
                }
                closing.cancel();
            };
            tokio::pin!(served);
            tokio::select! {
                ended = &mut served => return ended,
                () = close => {}
            }
            served.await
        });
        Ok(())
    }
}

async fn listen(
    routes: Routes,
    (listener, port): (TcpListener, Port),
    tls: Option<ServerTls>,
    stop: CancellationToken,
) -> Result<()> {
    let until = stop.clone().cancelled_owned();
    let (accepted, incoming) = mpsc::channel(64);
    let connection = move |stream| {
        let accepted = accepted.clone();
        async move { _ = accepted.send(Ok::<_, Infallible>(Socket(stream))).await }
    };
    let accepting = port.accept(listener, tls, Protocol::Http2, connection, stop);
    let serving = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .timeout(CALL_TIMEOUT)
        .serve_with_incoming_shutdown(
            TrackedRoutes(routes.prepare()),
            ReceiverStream::new(incoming),
            until,
        );
    let ((), served) = tokio::join!(accepting, serving);
    Ok(served?)
}
