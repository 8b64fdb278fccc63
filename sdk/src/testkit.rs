//! For a provider's own tests: run it on a free port of this machine and ask it
//! over real gRPC.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::Result;
use tautline_proto::{
    allocator::{
        ConfirmRequest, ReleaseRequest, ReserveRequest, ReserveResponse,
        allocator_client::AllocatorClient,
    },
    ruleprovider::{
        EndpointCostRequest, EndpointCostResponse, EvaluateRequest, EvaluateResponse,
        rule_provider_client::RuleProviderClient,
    },
};
use tautline_runtime::tasks::Tasks;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, transport::Channel};

use crate::{Allocator, Config, RuleProvider, Server};

/// A provider that runs until it is stopped or dropped.
pub struct TestServer {
    /// Where it listens.
    pub address: SocketAddr,
    client: RuleProviderClient<Channel>,
    allocator: AllocatorClient<Channel>,
    stop: CancellationToken,
    done: Option<JoinHandle<Result<()>>>,
}

/// A configuration for loopback: a free port, no admin port, no TLS.
pub fn loopback() -> Config {
    Config {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        admin: None,
        tls: None,
        ..Config::default()
    }
}

/// Starts `provider` on a free port.
///
/// # Errors
/// No port could be bound.
pub async fn start(provider: impl RuleProvider) -> Result<TestServer> {
    start_with(provider, loopback()).await
}

/// Starts `provider` as configured. [`Running`]'s own client speaks no TLS.
///
/// # Errors
/// The port is taken, or TLS files do not load.
pub async fn start_with(provider: impl RuleProvider, config: Config) -> Result<TestServer> {
    let server = Server::bind(config).await?;
    let address = server.address();
    let mut tasks = Tasks::default();
    server.spawn(Arc::new(provider), &mut tasks)?;
    running(address, tasks)
}

/// Starts `provider` and `allocator` on a free port.
///
/// # Errors
/// No port could be bound.
pub async fn start_with_allocator(
    provider: impl RuleProvider,
    allocator: impl Allocator,
) -> Result<TestServer> {
    let server = Server::bind(loopback()).await?;
    let address = server.address();
    let mut tasks = Tasks::default();
    server.spawn_with_allocator(Arc::new(provider), Arc::new(allocator), &mut tasks)?;
    running(address, tasks)
}

fn running(address: SocketAddr, tasks: Tasks) -> Result<TestServer> {
    let stop = tasks.stop_token();
    let channel = Channel::from_shared(format!("http://{address}"))?.connect_lazy();
    let done = tokio::spawn(tasks.run(std::future::pending()));
    Ok(TestServer {
        address,
        client: RuleProviderClient::new(channel.clone()),
        allocator: AllocatorClient::new(channel),
        stop,
        done: Some(done),
    })
}

impl TestServer {
    /// Asks for costs.
    ///
    /// # Errors
    /// What the provider answers instead.
    pub async fn endpoint_cost(
        &self,
        ask: EndpointCostRequest,
    ) -> Result<EndpointCostResponse, Status> {
        self.endpoint_cost_with(Request::new(ask)).await
    }

    /// Asks for costs by a request of one's own making, with a deadline, say.
    ///
    /// # Errors
    /// What the provider answers instead.
    pub async fn endpoint_cost_with(
        &self,
        request: Request<EndpointCostRequest>,
    ) -> Result<EndpointCostResponse, Status> {
        let answer = self.client.clone().endpoint_cost(request).await?;
        Ok(answer.into_inner())
    }

    /// Asks for the compliance of placed objects.
    ///
    /// # Errors
    /// What the provider answers instead.
    pub async fn evaluate(&self, ask: EvaluateRequest) -> Result<EvaluateResponse, Status> {
        Ok(self.client.clone().evaluate(ask).await?.into_inner())
    }

    /// Asks for a reservation.
    ///
    /// # Errors
    /// What the allocator answers instead.
    pub async fn reserve(&self, ask: ReserveRequest) -> Result<ReserveResponse, Status> {
        Ok(self.allocator.clone().reserve(ask).await?.into_inner())
    }

    /// Confirms a reservation.
    ///
    /// # Errors
    /// What the allocator answers instead.
    pub async fn confirm(&self, id: &str) -> Result<(), Status> {
        let ask = ConfirmRequest { id: id.to_owned() };
        self.allocator.clone().confirm(ask).await.map(drop)
    }

    /// Releases a reservation.
    ///
    /// # Errors
    /// What the allocator answers instead.
    pub async fn release(&self, id: &str) -> Result<(), Status> {
        let ask = ReleaseRequest { id: id.to_owned() };
        self.allocator.clone().release(ask).await.map(drop)
    }

    /// Stops it and waits until calls under way have ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(done) = self.done.take() {
            _ = done.await;
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
