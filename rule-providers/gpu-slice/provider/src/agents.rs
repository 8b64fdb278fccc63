//! The gRPC service that agents connect to, with one stream for each node. Agents report the use of
//! cards by containers.

mod metrics;
mod service;
mod stream;

#[cfg(test)]
mod tests;

pub(crate) use metrics::AgentMetrics;

use tautline_agent_link::AgentAuth;
use tautline_proto::gpu::agents_server::AgentsServer;
use tautline_sdk::Server;
use tokio_util::sync::CancellationToken;

use crate::provider::GpuSlice;
use service::AgentService;

/// The audience of the tokens that agents show.
pub const AUDIENCE: &str = "tautline-gpu";

/// The maximum length of a message: it must hold the use of a node with the most cards and
/// containers.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

impl GpuSlice {
    /// Adds the agents' service and metrics to the server. Streams end with `stop`.
    pub fn serve_agents(&self, auth: AgentAuth, server: &mut Server, stop: CancellationToken) {
        let metrics = self.state.lock().uses.metrics.clone();
        metrics.register("", &mut server.registry);
        let service = AgentService::new(self.clone(), (auth, metrics), stop);
        let service = AgentsServer::new(service).max_decoding_message_size(MAX_MESSAGE_BYTES);
        server.add_service(service);
    }
}
