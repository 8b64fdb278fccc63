//! The extender over HTTP, with providers on loopback and without a cluster.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

mod admin;
mod collector;
mod floods;
mod groups;
mod in_flight;
mod served;
mod traces;
mod underlay;
mod verbs;
mod what_if;
