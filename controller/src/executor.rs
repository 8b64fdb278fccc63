//! The executor carries out the decisions of the pure modules: it watches the cluster, writes
//! objects and calls providers. Each task owns one state machine and returns the results to it.

pub(crate) mod api;
mod attempt;
#[cfg(test)]
mod attempt_tests;
pub(crate) mod bindings;
#[cfg(test)]
mod bindings_tests;
mod calls;
mod cluster_calls;
pub(crate) mod context;
pub(crate) mod evaluate;
mod evict;
pub(crate) mod gate;
mod mediate;
pub(crate) mod open_reports;
pub(crate) mod release;
pub(crate) mod violations;
pub(crate) mod watch_bindings;
mod writes;
