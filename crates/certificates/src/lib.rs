//! Generates the serving certificates of a server, and replaces them before they expire. The
//! replicas of the server share the certificates in one Secret; the first one that writes a new set
//! wins.
//!
//! Clients learn the CA in one of two ways ([`Ca`]): the server publishes it, as in the `caBundle`
//! of a webhook, or the operator copies it once, as for kube-scheduler, which reads a file at its
//! start.

#![warn(missing_docs)]

mod certificate_set;
mod metrics;
mod rotator;

pub use certificate_set::{Ca, Times};
pub use metrics::CertificateMetrics;
pub use rotator::{CertificateOutputs, CertificateRotator};
