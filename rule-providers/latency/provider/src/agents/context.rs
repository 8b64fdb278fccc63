use std::sync::Arc;

use tautline_agent_link::AgentAuth;
use tautline_proto::latency::ToAgent;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::keys::EchoKeys;
use crate::network::Network;

/// A message to an agent, or the status that ends its stream. It is boxed because a channel
/// allocates room for 32 messages.
pub(super) type Outgoing = Box<Result<ToAgent, Status>>;

#[derive(Clone, Debug)]
pub(super) struct StreamContext {
    pub network: Network,
    pub auth: Arc<AgentAuth>,
    pub keys: EchoKeys,
    pub stop: CancellationToken,
}
