//! Admission webhooks: one HTTPS server that the API server asks about objects
//! before it stores them.
//!
//! What is asked and answered is `admission.k8s.io/v1` AdmissionReview. Each path
//! is one [`job`]; a job is a thin adapter onto a crate that knows no HTTP. The
//! server makes and rotates its own certificates ([`certificates`]) and keeps
//! the `caBundle` of its webhook configurations ([`webhooks`]) in step with them.

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

/// Reads bytes as a review and judges its objects: for the fuzz target.
#[doc(hidden)]
pub fn fuzz_review(data: &[u8]) {
    fuzz::review(data);
}
