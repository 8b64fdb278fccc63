//! The controller: offers become bindings, bindings are evaluated by the rule
//! providers, and violations are acted on as their offers say: reported, mended
//! by the underlay, or answered by evicting a pod that has a better node.
//!
//! One replica leads, by a Lease; the others keep everything warm and wait.

mod app;
mod decisions;
mod evaluate;
mod evict;
mod gate;
mod keeper;
mod known;
mod lanes;
mod mediate;
mod metrics;
mod offers;
mod release;
mod schedule;
mod status;
mod store;
mod violations;
mod write;

pub use app::{App, Config, LEASE};
