//! The GPUs of a cluster: what a node's devices are and what is left of them
//! ([`mig`], [`dra`]).
//! Pure: nothing here knows a cluster's API or waits.

pub mod dra;
pub mod mig;
