//! The server's certificates. A certificate set is a CA and the one certificate that it
//! has signed; the CA's key is discarded at once, so that it signs nothing else. Replicas
//! share the sets in a Secret.

mod certificate_set;
mod rotator;

pub use certificate_set::{CertificateError, CertificateSet, CertificateSets, Times};
pub(crate) use rotator::{CertificateOutputs, CertificateRotator};
