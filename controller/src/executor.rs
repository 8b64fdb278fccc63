//! The executor carries out what the pure modules decide: watches, writes, calls to
//! providers. Each task here owns one state machine and returns results to it.

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
