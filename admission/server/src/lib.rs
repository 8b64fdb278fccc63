//! Admission webhooks: an HTTPS server that the API server calls before it stores
//! objects.
//!
//! Requests and responses are AdmissionReviews of `admission.k8s.io/v1`. Each path has
//! a [`handler`], a thin adapter to a crate that knows no HTTP. The server generates
//! and rotates its certificates ([`certificates`]) and writes their CAs into the
//! `caBundle` of its webhook configurations ([`webhooks`]).

mod access;
pub mod app;
pub mod certificates;
pub mod config;
mod constraint_kinds;
mod fuzz;
mod governed;
mod gpu_sharing;
pub mod handler;
mod metrics;
mod model_registry;
mod mutations;
pub mod review;
mod server;
mod watches;
mod webhook_writer;
pub mod webhooks;

pub use app::App;
pub use config::Config;

/// Parses bytes as a review and runs the handlers on its objects: for the fuzz target.
#[doc(hidden)]
pub fn fuzz_review(data: &[u8]) {
    fuzz::review(data);
}
