//! The extender over real HTTP, with real providers on loopback and no cluster.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod floods;
mod served;
mod underlay;
mod verbs;
