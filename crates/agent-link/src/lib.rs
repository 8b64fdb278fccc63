//! What agents on nodes and their rule provider have in common: an agent keeps a stream to each
//! replica of the provider ([`follow_replicas`], [`keep_open`], [`Dialer`]), and a provider accepts
//! an agent for its own node only ([`AgentAuth`]).

#![warn(missing_docs)]

mod auth;
mod dial;
mod node_name;
mod rate_limit;
mod reconnect;
mod replicas;
mod token_review;
mod tokens;

pub use auth::{AgentAuth, Credentials};
pub use dial::{Dialer, Provider, Token};
pub use node_name::{MAX_NODE_NAME_BYTES, is_node_name};
pub use rate_limit::RateLimit;
pub use reconnect::{keep_open, refused};
pub use replicas::follow_replicas;
pub use token_review::review;
pub use tokens::{Review, Reviewed, TokenReviewer};
