//! A provider's server: gRPC with health and reflection, TLS, metrics, and a graceful shutdown.

use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use prometheus_client::registry::Registry;
use tautline_proto::{FILE_DESCRIPTOR_SET, allocator::allocator_server::AllocatorServer};
use tautline_serve::{
    admin::{self, Readiness},
    http::{Body as AdminBody, ConnectionMetrics, Port, PortMetrics},
    limits,
    tasks::{self, Tasks},
    tls::ServerTls,
};
use tokio::net::TcpListener;
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
    Allocator, Config, RuleProvider, calls,
    gate::{Gate, Metrics},
    pages::AdminPage,
    service::{AllocatorService, MAX_REQUEST_BYTES, RuleService},
};

/// The prefix of the port's metrics.
const PREFIX: &str = "ruleprovider_";

type Pages = Arc<dyn Fn(String, String) -> BoxFuture<'static, Option<AdminPage>> + Send + Sync>;

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
    pages: Option<Pages>,
    routes: RoutesBuilder,
    /// The services whose health is reported; "" is the overall health.
    names: Vec<&'static str>,
    gate: Gate,
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
        let mut registry = Registry::with_prefix("tautline");
        let readiness = Readiness::default();
        let gate = Gate {
            readiness: readiness.clone(),
            metrics: Metrics::registered("", &mut registry),
        };
        Ok(Self {
            config,
            listener,
            admin,
            address,
            drain: None,
            pages: None,
            routes: RoutesBuilder::default(),
            names: vec![""],
            gate,
            registry,
            readiness,
        })
    }

    /// Returns the address of gRPC.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the admin port, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref()?.local_addr().ok()
    }

    /// Serves more paths on the admin port. `answer` receives the path and query, undecoded; `None`
    /// becomes a 404.
    pub fn admin_pages<F>(&mut self, answer: impl Fn(String, String) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Option<AdminPage>> + Send + 'static,
    {
        self.pages = Some(Arc::new(move |path, query| Box::pin(answer(path, query))));
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
        let rules = RuleService {
            provider,
            gate: self.gate.clone(),
            streams: Arc::default(),
            stop: tasks.stop_token(),
        };
        self.add_service(rules);
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
        let gate = self.gate.clone();
        self.add_service(AllocatorServer::new(AllocatorService { allocator, gate }));
        self.spawn(provider, tasks)
    }

    fn launch(mut self, tasks: &mut Tasks) -> Result<()> {
        let stop = tasks.stop_token();
        let (health, health_service) = tonic_health::server::health_reporter();
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .build_v1()
            .context("the contracts' descriptors do not load")?;
        let routes = self.routes.routes().add_service(health_service);
        let routes = routes.add_service(reflection).prepare();
        let routes = move |request: Request<Body>| routes.clone().call(request);
        #[cfg(feature = "traces")]
        let routes = crate::spans::traced(self.config.traces.clone(), routes);

        let port_metrics = PortMetrics::default();
        let registry = &mut self.registry;
        port_metrics.connections.register(PREFIX, registry);
        let port = Port::new(self.config.limits(), MAX_REQUEST_BYTES, port_metrics);

        let (readiness, ready_stop) = (self.readiness.clone(), stop.clone());
        tasks.spawn("health", async move {
            let report = async |status| {
                for name in &self.names {
                    health.set_service_status(name, status).await;
                }
            };
            report(ServingStatus::NotServing).await;
            let is_ready = ready_stop.run_until_cancelled(readiness.wait()).await;
            if is_ready.is_some() {
                report(ServingStatus::Serving).await;
                ready_stop.cancelled().await;
                report(ServingStatus::NotServing).await;
            }
            Ok(())
        });
        if let Some(listener) = self.admin {
            let registry = Arc::new(self.registry);
            let pages = self.pages;
            let more = move |request: Request<AdminBody>| {
                let query = request.uri().query().unwrap_or_default().to_owned();
                let answer = |pages: &Pages| pages(request.uri().path().to_owned(), query);
                let page = pages.as_ref().map(answer);
                async move { page?.await.map(Into::into) }
            };
            tasks.spawn(
                "admin",
                admin::serve(listener, registry, self.readiness, more, stop.clone()),
            );
        }
        if let Some(files) = &mut self.config.tls {
            files.alpn = vec!["h2"];
        }
        let tls = self.config.tls.map(ServerTls::load).transpose()?;
        if let Some(tls) = tls.clone() {
            tasks.spawn("tls", tls.watch_files(stop.clone()));
        }
        let closing = CancellationToken::new();
        let served = calls::serve(routes, (self.listener, port), tls, closing.clone());
        tasks.spawn("grpc", async move {
            let close = async {
                stop.cancelled().await;
                if let Some(drain) = self.drain {
                    drain.cancelled().await;
                }
                closing.cancel();
            };
            tokio::join!(close, served);
            Ok(())
        });
        Ok(())
    }
}
