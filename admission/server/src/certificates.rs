//! Certificate sets: a CA, whose key is discarded at once, and the one certificate it has
//! signed.

mod certificate_set;
mod rotator;

pub use certificate_set::Times;
pub(crate) use rotator::{CertificateOutputs, CertificateRotator};
