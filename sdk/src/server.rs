//! A provider's server: gRPC with health and reflection, TLS, metrics, and a graceful shutdown.

use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use prometheus_client::registry::Registry;
use tautline_proto::{FILE_DESCRIPTOR_SET, allocator::allocator_server::AllocatorServer};
use tautline_serve::{
    admin::{self, Readiness},
    http::{Body as AdminBody, ConnectionMetrics, Port, PortMetrics, Protocol},
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
    service::RoutesBuilder,
};
use tonic_health::ServingStatus;

use crate::{
    Allocator, Config, RuleProvider,
    calls::{Socket, TrackedBody, TrackedRoutes},
    metrics::Metrics,
    pages::{AdminPage, Pages},
    service::{AllocatorService, ReadinessGate, RuleService},
    watch_costs::CostStreams,
};

/// The maximum size of a request.
const MAX_REQUEST_BYTES: usize = 16 << 20;
/// The deadline of unary calls, so that unfinished requests end. Streams have no deadline.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The prefix of the port's metrics.
const PREFIX: &str = "ruleprovider_";

/// Registers the metrics of a server, each with one series, for the reference of metrics.
#[doc(hidden)]
pub fn example_metrics(registry: &mut Registry) {
    Metrics::example("", registry);
    ConnectionMetrics::example(PREFIX, registry);
}

/// Serves `provider` until SIGTERM or Ctrl-C, then finishes calls in progress. Prints
/// `listening on ADDRESS` once the port is open.
///
/// ```no_run
/// # use tautline_sdk::{CostAnswer, CostRequest, ProviderError};
/// # async fn spread(_: CostRequest) -> Result<CostAnswer, ProviderError> {
/// #     Ok(CostAnswer::default())
/// # }
/// #[tokio::main]
/// async fn main() -> anyhow::Result<()> {
///     let admin = Some(([0, 0, 0, 0], 9090).into());
///     tautline_sdk::serve(spread, tautline_sdk::Config { admin, ..Default::default() }).await
/// }
/// ```
///
/// # Errors
/// An address is in use, or TLS files do not load.
pub async fn serve(provider: impl RuleProvider, config: Config) -> Result<()> {
    limits::raise_open_files();
    #[cfg(feature = "traces")]
    let config = with_traces(config)?;
    #[cfg(feature = "traces")]
    let traces = config.traces.clone();
    let mut tasks = Tasks::default();
    let server = Server::bind(config).await?;
    println!("listening on {}", server.address());
    server.spawn(Arc::new(provider), &mut tasks)?;
    let result = tasks.run(tasks::shutdown_signal()).await;
    #[cfg(feature = "traces")]
    traces.end().await;
    result
}

#[cfg(feature = "traces")]
fn with_traces(config: Config) -> Result<Config> {
    if config.traces.is_on() {
        return Ok(config);
    }
    let traces = tautline_traces::Traces::start("rule-provider", None)?;
    Ok(Config { traces, ..config })
}

/// A server with bound ports, whose connections wait until it is spawned.
///
/// ```
/// # use std::sync::Arc;
/// # use tautline_sdk::{Config, CostAnswer, CostRequest, ProviderError, Server};
/// # async fn spread(_: CostRequest) -> Result<CostAnswer, ProviderError> {
/// #     Ok(CostAnswer::default())
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// let config = Config { listen: ([127, 0, 0, 1], 0).into(), ..Config::default() };
/// let server = Server::bind(config).await?;
/// let readiness = server.readiness.clone();
/// readiness.expect("table");
/// let mut tasks = tautline_sdk::Tasks::default();
/// server.spawn(Arc::new(spread), &mut tasks)?;
/// // Calls return UNAVAILABLE until the table is loaded.
/// readiness.done("table");
/// tasks.run(async { /* until a signal */ }).await
/// # }
/// ```
pub struct Server {
    config: Config,
    listener: TcpListener,
    admin: Option<TcpListener>,
    address: SocketAddr,
    drain: Option<CancellationToken>,
    pages: Pages,
    routes: RoutesBuilder,
    names: Vec<&'static str>,
    /// The server's metrics; a provider may add its own, which get the prefix `tautline_`.
    pub registry: Registry,
    /// The conditions of readiness. Until all are met, health reports NOT_SERVING and calls return
    /// UNAVAILABLE.
    pub readiness: Readiness,
}

impl Server {
    /// Binds the ports.
    ///
    /// # Errors
    /// An address is in use.
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
            drain: None,
            pages: Pages::default(),
            routes: RoutesBuilder::default(),
            names: Vec::new(),
            registry,
            readiness,
        })
    }

    /// The address of gRPC.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the admin port, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref()?.local_addr().ok()
    }

    /// Serves more paths on the admin port. `answer` receives the path and query, undecoded; `None`
    /// becomes a 404.
    pub fn admin_pages<F>(&mut self, answer: impl Fn(String, String) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Option<AdminPage>> + Send + 'static,
    {
        self.pages = Pages::new(answer);
    }

    /// Serves gRPC after the stop until this token is cancelled too, for callers that still confirm
    /// or release. The process waits at most 20 s for its tasks.
    pub fn drain_until(&mut self, until: CancellationToken) {
        self.drain = Some(until);
    }

    /// Serves another gRPC service (a generated `...Server`) on the same port.
    pub fn add_service<S>(&mut self, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        self.routes.add_service(service);
        self.names.push(S::NAME);
    }

    /// Serves `provider` as tasks of the process.
    ///
    /// # Errors
    /// TLS files do not load.
    pub fn spawn<P: RuleProvider>(mut self, provider: Arc<P>, tasks: &mut Tasks) -> Result<()> {
        let gate = self.gate();
        self.add_rules(provider, gate, tasks);
        self.launch(tasks)
    }

    /// Serves `provider` and `allocator`.
    ///
    /// # Errors
    /// TLS files do not load.
    pub fn spawn_with_allocator<P: RuleProvider, A: Allocator>(
        mut self,
        provider: Arc<P>,
        allocator: Arc<A>,
        tasks: &mut Tasks,
    ) -> Result<()> {
        let gate = self.gate();
        self.add_rules(provider, gate.clone(), tasks);
        self.add_service(AllocatorServer::new(AllocatorService { allocator, gate }));
        self.launch(tasks)
    }

    fn add_rules<P: RuleProvider>(&mut self, provider: Arc<P>, gate: ReadinessGate, tasks: &Tasks) {
        self.add_service(RuleService {
            provider,
            gate,
            streams: CostStreams::new(tasks.stop_token()),
        });
    }

    fn gate(&mut self) -> ReadinessGate {
        ReadinessGate {
            readiness: self.readiness.clone(),
            metrics: Metrics::registered("", &mut self.registry),
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
        let connections = &port_metrics.connections;
        connections.register(PREFIX, &mut self.registry);
        let port = Port::new(self.config.limits(), MAX_REQUEST_BYTES, port_metrics);

        let readiness = self.readiness.clone();
        let ready_stop = stop.clone();
        // Overall health is the service "".
        names.push("");
        tasks.spawn("health", async move {
            let report = async |status| {
                for name in &names {
                    health.set_service_status(name, status).await;
                }
            };
            report(ServingStatus::NotServing).await;
            tokio::select! { () = readiness.wait() => {}, () = ready_stop.cancelled() => return Ok(()) }
            report(ServingStatus::Serving).await;
            ready_stop.cancelled().await;
            report(ServingStatus::NotServing).await;
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
        let routes = TrackedRoutes(routes.prepare());
        #[cfg(feature = "traces")]
        let routes = crate::spans::TracedRoutes {
            routes,
            traces: self.config.traces,
        };
        let served = listen(routes, (self.listener, port), tls, closing.clone());
        tasks.spawn("grpc", async move {
            let close = async {
                stop.cancelled().await;
                if let Some(drain) = self.drain {
                    drain.cancelled().await;
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

async fn listen<R>(
    routes: R,
    (listener, port): (TcpListener, Port),
    tls: Option<ServerTls>,
    stop: CancellationToken,
) -> Result<()>
where
    R: Service<Request<Body>, Response = Response<TrackedBody>, Error = Infallible>,
    R: Clone + Send + 'static,
    R::Future: Send + 'static,
{
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
        .serve_with_incoming_shutdown(routes, ReceiverStream::new(incoming), until);
    let ((), served) = tokio::join!(accepting, serving);
    Ok(served?)
}
