//! The gRPC service that agents connect to, one stream for each node, and proof of their identity.

pub(crate) mod auth;
mod context;
mod grpc;
mod hello;
pub(crate) mod keys;
mod rate_limit;
mod service;
mod stream;
pub(crate) mod tokens;

#[cfg(test)]
mod tests;

pub(crate) use service::AgentService;
