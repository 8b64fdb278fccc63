//! Runs a provider on a free local port and calls it over real gRPC, for its own tests.
//!
//! ```
//! # use tautline_sdk::{CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider};
//! # struct Spread;
//! # impl RuleProvider for Spread {
//! #     async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
//! #         Ok(request.eligible_nodes.iter().map(|node| (node, 0)).collect())
//! #     }
//! #     async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
//! #         Ok(Evaluation::compliant(""))
//! #     }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! let server = tautline_sdk::testkit::start(Spread).await?;
//! let request = tautline_proto::ruleprovider::EndpointCostRequest {
//!     eligible_nodes: vec!["a".into(), "b".into()],
//!     ..Default::default()
//! };
//! let answer = server.endpoint_cost(request).await?;
//! assert_eq!(answer.node_and_cost.len(), 2);
//! server.stop().await;
//! # Ok(())
//! # }
//! ```

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
use tautline_serve::tasks::Tasks;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, transport::Channel};

use crate::{Allocator, Config, RuleProvider, Server};

/// A running provider, which stops when dropped.
pub struct TestServer {
    /// The address of the provider.
    pub address: SocketAddr,
    client: RuleProviderClient<Channel>,
    allocator: AllocatorClient<Channel>,
    stop: CancellationToken,
    done: Option<JoinHandle<Result<()>>>,
}

/// The configuration of [`start`]: a free port of 127.0.0.1, no admin port, no TLS.
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
/// No port is free.
pub async fn start(provider: impl RuleProvider) -> Result<TestServer> {
    start_with(provider, loopback()).await
}

/// Starts `provider` with a configuration. The client of [`TestServer`] does not use TLS.
///
/// # Errors
/// The port is in use, or TLS files do not load.
pub async fn start_with(provider: impl RuleProvider, config: Config) -> Result<TestServer> {
    let server = Server::bind(config).await?;
    let address = server.address();
    let mut tasks = Tasks::default();
    server.spawn(Arc::new(provider), &mut tasks)?;
    test_server(address, tasks)
}

/// Starts `provider` and `allocator` on a free port.
///
/// # Errors
/// No port is free.
pub async fn start_with_allocator(
    provider: impl RuleProvider,
    allocator: impl Allocator,
) -> Result<TestServer> {
    let server = Server::bind(loopback()).await?;
    let address = server.address();
    let mut tasks = Tasks::default();
    server.spawn_with_allocator(Arc::new(provider), Arc::new(allocator), &mut tasks)?;
    test_server(address, tasks)
}

fn test_server(address: SocketAddr, tasks: Tasks) -> Result<TestServer> {
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
    /// Calls EndpointCost.
    ///
    /// # Errors
    /// The provider's status.
    pub async fn endpoint_cost(
        &self,
        request: EndpointCostRequest,
    ) -> Result<EndpointCostResponse, Status> {
        self.endpoint_cost_with(Request::new(request)).await
    }

    /// Calls EndpointCost with metadata, such as a deadline.
    ///
    /// # Errors
    /// The provider's status.
    pub async fn endpoint_cost_with(
        &self,
        request: Request<EndpointCostRequest>,
    ) -> Result<EndpointCostResponse, Status> {
        let answer = self.client.clone().endpoint_cost(request).await?;
        Ok(answer.into_inner())
    }

    /// Calls Evaluate.
    ///
    /// # Errors
    /// The provider's status.
    pub async fn evaluate(&self, request: EvaluateRequest) -> Result<EvaluateResponse, Status> {
        Ok(self.client.clone().evaluate(request).await?.into_inner())
    }

    /// Calls Reserve.
    ///
    /// # Errors
    /// The allocator's status.
    pub async fn reserve(&self, request: ReserveRequest) -> Result<ReserveResponse, Status> {
        Ok(self.allocator.clone().reserve(request).await?.into_inner())
    }

    /// Calls Confirm.
    ///
    /// # Errors
    /// The allocator's status.
    pub async fn confirm(&self, id: &str) -> Result<(), Status> {
        let request = ConfirmRequest { id: id.to_owned() };
        self.allocator.clone().confirm(request).await.map(drop)
    }

    /// Calls Release.
    ///
    /// # Errors
    /// The allocator's status.
    pub async fn release(&self, id: &str) -> Result<(), Status> {
        let request = ReleaseRequest { id: id.to_owned() };
        self.allocator.clone().release(request).await.map(drop)
    }

    /// Stops the server after the calls in progress.
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
