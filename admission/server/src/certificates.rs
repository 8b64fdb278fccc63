//! The server's own certificates. Each generation is a CA of its own and one
//! serving certificate; the CA's key is forgotten at once, so that nobody can
//! sign anything else with it. A Secret holds the generations, so that replicas
//! share them.

mod generation;
mod keeper;

pub use generation::{CertificateError, Generation, Generations, Times};
pub(crate) use keeper::{Keeper, Published};
