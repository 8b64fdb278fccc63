//! The gRPC service that the agents on the nodes connect to: one stream for each node, and the
//! proof of the agent's identity.

mod grpc;
pub(crate) mod keys;
mod stream;

#[cfg(test)]
mod tests;

pub(crate) use stream::AgentService;

/// The audience of the tokens by which agents prove their node.
pub(crate) const AUDIENCE: &str = "tautline-latency";
