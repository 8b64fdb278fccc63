//! The thread that predicts the round-trip times of unmeasured pairs. It fits the model to changes
//! of the pair store, and publishes estimates and each node's targets. Requests read the last fit
//! and never wait.

mod background;
mod context;
mod fitter;
mod state_file;

#[cfg(test)]
mod tests;

pub(crate) use background::run;
pub(crate) use context::FitContext;
pub use context::{DEFAULT_TARGETS, FitSettings, RACK};
