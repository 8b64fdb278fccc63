//! Offers become bindings, rule providers evaluate them, and violations are reported, mitigated
//! by the underlay or ended by an eviction. One replica leads, by a Lease.
//!
//! [`reconciler`], [`violations`], [`eviction`], [`mitigation`], [`release`] and [`gate`] are
//! pure: no client, channel or clock. The [`executor`] carries out their decisions.

#![warn(missing_docs)]

mod app;
mod binding_spec;
mod binding_status;
mod clock;
mod config;
mod decisions;
mod evaluation;
mod eviction;
mod executor;
mod gate;
mod kind_states;
mod metrics;
mod mitigation;
mod offer_status;
mod provider_limiter;
mod question;
mod reconciler;
mod release;
mod schedule;
mod violations;
mod write_error;

pub use app::App;
pub use config::{Config, LEASE};
