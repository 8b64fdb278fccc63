//! The gRPC service that agents connect to, one stream for each node, and proof of their identity.

mod context;
mod grpc;
mod hello;
pub(crate) mod keys;
mod service;
mod stream;

#[cfg(test)]
mod tests;

pub(crate) use service::AgentService;

/// Of the tokens that agents show.
pub(crate) const AUDIENCE: &str = "tautline-latency";
