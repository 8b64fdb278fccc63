//! Finds rule providers by the labels of their Services, keeps one HTTP/2
//! channel to each of their addresses, and asks them: one rule ([`client`]), or
//! every rule of a pod at once ([`round`]).

mod ahead;
pub mod allocate;
mod asking;
pub mod breaker;
mod budget;
mod cache;
mod call;
pub mod client;
mod codec;
mod dial;
mod failure;
mod metrics;
mod pool;
pub mod round;
mod underlay;

pub use client::{CallError, Config, Discovery};
pub use metrics::Metrics;
pub use round::{Question, Round, RuleRecord};
pub use underlay::{AllocateError, Mitigation};

/// Reads bytes as a provider's answer: for the fuzz target.
#[doc(hidden)]
pub fn fuzz_answer(data: &[u8]) {
    codec::fuzz_answer(data);
}
