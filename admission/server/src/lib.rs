//! Admission webhooks. Each path has a handler, an adapter to a crate that knows no HTTP.
//! The server manages its certificates ([`tautline_certificates`]) and configurations ([`webhooks`]).

#![warn(missing_docs)]

mod access;
mod app;
pub mod config;
mod constraint_kinds;
mod fuzz;
mod governed;
mod gpu_sharing;
mod handler;
mod metrics;
mod model_registry;
mod mutations;
mod response;
mod review;
mod server;
mod watches;
mod webhook_writer;
pub mod webhooks;

pub use app::App;
pub use config::Config;

/// For the fuzz target.
#[doc(hidden)]
pub fn fuzz_review(data: &[u8]) {
    fuzz::review(data);
}
