//! Write a rule provider: implement [`RuleProvider`], hand it to [`serve`], and
//! label a Service `constraint.ciena.com/constraint-<rule>: enabled`.
//!
//! ```no_run
//! use tautline_sdk::{CostAnswer, CostQuestion, Evaluation, EvaluateQuestion, ProviderError, RuleProvider};
//!
//! /// Prefers nodes with short names.
//! struct ShortNames;
//!
//! impl RuleProvider for ShortNames {
//!     async fn endpoint_cost(&self, ask: CostQuestion) -> Result<CostAnswer, ProviderError> {
//!         Ok(ask.eligible_nodes.iter().map(|n| (n, n.len() as i64)).collect())
//!     }
//!     async fn evaluate(&self, _: EvaluateQuestion) -> Result<Evaluation, ProviderError> {
//!         Ok(Evaluation::compliant("any name will do"))
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> anyhow::Result<()> {
//!     tautline_sdk::serve(ShortNames, tautline_sdk::Config::default()).await
//! }
//! ```

#![warn(missing_docs)]

mod allocate;
mod answer;
mod answer_cache;
mod calls;
mod change_log;
mod codec;
mod deadline;
mod metrics;
mod pages;
pub mod reservations;
mod server;
mod service;
pub mod testkit;
mod types;

use std::future::Future;

pub use allocate::{
    AllocatorError, ReservationRef, ReservationRequest, Reserved, add_forwarded_metadata,
};
pub use answer::CostAnswer;
pub use answer_cache::AnswerCache;
pub use change_log::ChangeLog;
pub use pages::AdminPage;
pub use server::{Config, Server, serve};
pub use tautline_core::{Compliance, Reference};
pub use tautline_proto::{MAX_HOLD, endpoint_cost::NodeCost};
pub use tautline_runtime::tls::ServerFiles as TlsFiles;
pub use types::{CostRequest, Evaluation, EvaluationRequest, Peer, ProviderError, Rule, Workload};

/// Measures one rule, or several.
pub trait RuleProvider: Send + Sync + 'static {
    /// What each eligible node would cost the workload. Called while the
    /// scheduler waits: answer within a few milliseconds, from memory.
    ///
    /// # Errors
    /// The rule then counts as unavailable for this question; several internal
    /// errors in a row, and the caller leaves the provider alone for a moment.
    fn endpoint_cost(
        &self,
        ask: CostRequest,
    ) -> impl Future<Output = Result<CostAnswer, ProviderError>> + Send;

    /// Whether placed workloads keep to the rule.
    ///
    /// # Errors
    /// The rule is then reported as [`Compliance::Error`].
    fn evaluate(
        &self,
        ask: EvaluationRequest,
    ) -> impl Future<Output = Result<Evaluation, ProviderError>> + Send;
}

/// Hands out something countable as pods are bound: the extender reserves, writes
/// the Binding, and confirms; it releases what was not bound. Served beside a
/// [`RuleProvider`] by [`Server::spawn_with_allocator`]. [`reservations::Book`]
/// keeps what is held.
pub trait Allocator: Send + Sync + 'static {
    /// Reserves on the node what the rule asks for, for as long as the question
    /// says. The same pod, node and rule again: the same answer.
    ///
    /// # Errors
    /// The pod is then not bound there.
    fn reserve(
        &self,
        ask: ReservationRequest,
    ) -> impl Future<Output = Result<Reserved, AllocatorError>> + Send;

    /// The pod is bound: what was reserved is its own until it has gone.
    ///
    /// # Errors
    /// [`AllocatorError::Expired`] if it is not held any more.
    fn confirm(
        &self,
        ask: ReservationRef,
    ) -> impl Future<Output = Result<(), AllocatorError>> + Send;

    /// The pod was not bound. Releasing what is not held is no error.
    ///
    /// # Errors
    /// It then ends by its expiry.
    fn release(
        &self,
        ask: ReservationRef,
    ) -> impl Future<Output = Result<(), AllocatorError>> + Send;
}
