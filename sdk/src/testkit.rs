//! Runs a provider on a free local port and calls it over real gRPC, for its own tests.
//!
//! ```
//! # use tautline_sdk::{CostAnswer, CostRequest, ProviderError};
//! # async fn spread(request: CostRequest) -> Result<CostAnswer, ProviderError> {
//! #     Ok(request.eligible_nodes.iter().map(|node| (node, 0)).collect())
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! let server = tautline_sdk::testkit::start(spread).await?;
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

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tautline_proto::{
    allocator::allocator_client::AllocatorClient,
    ruleprovider::{
        EndpointCostRequest, EndpointCostResponse, EvaluateRequest, EvaluateResponse,
        rule_provider_client::RuleProviderClient,
    },
};
use tautline_serve::tasks::Tasks;
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;
use tonic::{Status, transport::Channel};

use crate::{Allocator, Config, RuleProvider, Server};

/// A running provider, which stops when dropped.
pub struct TestServer {
    /// The address of the provider.
    pub address: SocketAddr,
    /// A client of the provider, for calls with metadata such as a deadline.
    pub client: RuleProviderClient<Channel>,
    /// A client of the allocator.
    pub allocator: AllocatorClient<Channel>,
    stop: DropGuard,
    done: JoinHandle<Result<()>>,
}

/// Returns the configuration of [`start`]: a free port of 127.0.0.1, no admin port, no TLS.
pub fn loopback() -> Config {
    Config {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
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

/// Starts `provider` with a configuration. The clients of [`TestServer`] do not use TLS.
///
/// # Errors
/// The port is in use, or TLS files do not load.
pub async fn start_with(provider: impl RuleProvider, config: Config) -> Result<TestServer> {
    let server = Server::bind(config).await?;
    run(server, |server, tasks| server.spawn(provider.into(), tasks))
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
    run(server, |server, tasks| {
        server.spawn_with_allocator(provider.into(), allocator.into(), tasks)
    })
}

fn run(server: Server, spawn: impl FnOnce(Server, &mut Tasks) -> Result<()>) -> Result<TestServer> {
    let (address, mut tasks) = (server.address(), Tasks::default());
    spawn(server, &mut tasks)?;
    let stop = tasks.stop_token().drop_guard();
    let channel = Channel::from_shared(format!("http://{address}"))?.connect_lazy();
    let done = tokio::spawn(tasks.run(std::future::pending()));
    Ok(TestServer {
        address,
        client: RuleProviderClient::new(channel.clone()),
        allocator: AllocatorClient::new(channel),
        stop,
        done,
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

    /// Stops the server after the calls in progress.
    pub async fn stop(self) {
        drop(self.stop);
        _ = self.done.await;
    }
}
