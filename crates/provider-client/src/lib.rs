//! Finds rule providers by the labels of their Services, keeps one HTTP/2
//! channel to each of their addresses, and asks them: one rule ([`client`]), or
//! every rule of a pod at once ([`round`]).

pub mod allocate;
pub mod breaker;
mod budget;
mod cache;
mod call;
pub mod client;
mod codec;
mod costs;
mod dial;
mod failure;
mod metrics;
pub mod planning_round;
mod pool;
mod refresh;
mod underlay;

pub use client::{CallError, ClientConfig, ProviderClient};
pub use metrics::Metrics;
pub use planning_round::{PlanningQuestion, PlanningRound, RuleRecord};
pub use underlay::{AllocateError, MitigationRequest};

/// Reads bytes as a provider's answer: for the fuzz target.
#[doc(hidden)]
pub fn fuzz_answer(data: &[u8]) {
    codec::fuzz_answer(data);
}
