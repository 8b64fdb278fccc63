//! The client of rule providers, found by the labels of their Services: one HTTP/2 channel per
//! address, deadlines, circuit breakers and budgets, for one rule or all rules of a pod.

#![warn(missing_docs)]

pub mod allocate;
mod breaker;
mod budget;
mod call;
pub mod client;
mod codec;
mod costs;
mod dial;
mod error;
mod failure;
mod hedge;
mod metrics;
pub mod planning_round;
mod pool;
mod question;
pub mod status;
mod streams;
mod traced;
mod underlay;

pub use client::{ClientConfig, ProviderClient};
pub use error::CallError;
pub use metrics::Metrics;
pub use planning_round::{PlanningRound, RuleRecord};
pub use question::{PlanningQuestion, texts};
pub use underlay::{AllocateError, MitigationRequest};

/// Parses bytes as a provider's answer. For the fuzz target.
#[doc(hidden)]
pub fn fuzz_answer(data: &[u8]) {
    codec::fuzz_answer(data);
}
