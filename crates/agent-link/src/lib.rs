//! Connects the agents on nodes with their rule provider. An agent keeps a stream open to each
//! replica of the provider, and a provider lets an agent report only for the node that it runs on.
//!
//! ```text
//! agent: follow_replicas ── a stream per replica (Dialer, keep_open) ──▶ provider: AgentAuth
//!                            client certificate, or token and TokenReview ──▶ the agent's node
//! ```

#![warn(missing_docs)]

mod auth;
mod dial;
mod rate_limit;
mod replicas;
mod silent;
mod tokens;

pub use auth::{AgentAuth, Credentials};
pub use dial::{Dialer, Provider, ProviderUrlError, Token};
pub use rate_limit::RateLimit;
pub use replicas::{follow_replicas, keep_open, refused};
pub use silent::{SilentAgent, SilentAgents};
pub use tokens::TokenReviewer;
