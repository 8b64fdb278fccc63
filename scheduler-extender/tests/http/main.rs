//! The extender over HTTP, with providers on loopback and without a cluster.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

mod floods;
mod in_flight;
mod served;
mod underlay;
mod verbs;
