//! Calls rule providers, which it finds by the labels of their Services, for one rule or all rules
//! of a pod. No provider can hold up a caller for long: each call has a deadline, each address a
//! circuit breaker, and each untrusted namespace a budget of the scheduler's time.
//!
//! ```text
//! question of a pod ── each rule ──┬─▶ the table of costs that the provider's stream has sent
//!                                  └─▶ else EndpointCost: breaker, budget, deadline, one retry
//!                    round: costs, or a code ──▶ Plan of tautline_core
//! ```
//!
//! There is one HTTP/2 channel per address.

#![warn(missing_docs)]

pub mod allocate;
mod budget;
mod call;
mod client;
mod codec;
pub mod config;
mod connection;
mod costs;
mod error;
mod hedge;
mod metrics;
pub mod planning_round;
mod pool;
mod question;
pub mod status;
mod streams;
mod underlay;

pub use client::ProviderClient;
#[doc(hidden)]
pub use codec::fuzz_answer;
pub use config::ClientConfig;
pub use error::CallError;
pub use metrics::Metrics;
pub use planning_round::{PlanningRound, RuleRecord};
pub use pool::client_tls;
pub use question::{PlanningQuestion, texts};
pub use underlay::{AllocateError, MitigationRequest};
