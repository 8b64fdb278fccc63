//! Admission webhooks: one HTTPS server that the API server asks about objects
//! before it stores them.
//!
//! What is asked and answered is `admission.k8s.io/v1` AdmissionReview. Each path
//! is one [`job`]; a job is a thin adapter onto a crate that knows no HTTP. The
//! server makes and rotates its own certificates ([`certificates`]) and keeps
//! the `caBundle` of its webhook configurations ([`webhooks`]) in step with them.

mod access;
pub mod app;
mod bundle;
pub mod certificates;
pub mod config;
mod feeds;
mod fuzz;
mod governed;
pub mod job;
mod metrics;
mod models;
mod mutations;
mod own;
pub mod review;
mod server;
mod slices;
pub mod webhooks;

pub use app::App;
pub use config::Config;

/// Reads bytes as a review and judges its objects: for the fuzz target.
#[doc(hidden)]
pub fn fuzz_review(data: &[u8]) {
    fuzz::review(data);
}
