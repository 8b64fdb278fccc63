//! Serving certificates that a server generates itself.
//!
//! The replicas of a server share the certificates in one Secret, and replace them before they
//! expire. Clients learn the CA in one of two ways, [`Ca`]: the server publishes it (webhooks have
//! a `caBundle`), or the operator copies it once (kube-scheduler reads a file at its start).

#![warn(missing_docs)]

mod certificate_set;
mod metrics;
mod rotator;

pub use certificate_set::{Ca, Times};
pub use metrics::CertificateMetrics;
pub use rotator::{CertificateOutputs, CertificateRotator};
