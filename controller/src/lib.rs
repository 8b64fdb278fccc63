//! The controller: offers become bindings, rule providers evaluate the bindings, and
//! violations are reported, mitigated by the underlay, or ended by evicting a pod that
//! has a better node. The offer says which.
//!
//! One replica leads, by a Lease; the others watch the same objects and do nothing.
//!
//! Decisions are pure: [`reconciler`], [`violations`], [`eviction`], [`mitigation`],
//! [`release`] and [`gate`] know no client, channel or clock. The [`executor`] carries
//! them out.

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
