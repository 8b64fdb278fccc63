//! The server's own certificates. Each generation is a CA of its own and one
//! serving certificate; the CA's key is forgotten at once, so that nobody can
//! sign anything else with it. A Secret holds the generations, so that replicas
//! share them.

mod certificate_set;
mod rotator;

pub use certificate_set::{CertificateError, CertificateSet, CertificateSets, Times};
pub(crate) use rotator::{CertificateOutputs, CertificateRotator};
