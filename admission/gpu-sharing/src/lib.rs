//! Turns requests for whole GPUs in a pod's JSON into requests for units of shared GPUs, by the
//! contract of CastSlice (<https://github.com/castops/cast-slice>). A pod opts in, and each card
//! becomes as many units as the pod's ratio says. The crate does no I/O.
//!
//! A pod opts in by the annotation `castops.io/optimize: "true"` or by a matching rule of the
//! [`Policy`]; `"false"` opts out. Each container that requests N cards then requests N times the
//! ratio of the shared resource. The ratio is the first that exists of: annotation
//! `castops.io/slice-ratio`, annotation `castops.io/workload-type`, the rule's `sliceRatio`, the
//! rule's `workloadType`, 1. The domain `tautline.io` works as well.

#![warn(missing_docs)]

mod annotations;
mod containers;
mod decision;
mod names;
mod policy;
mod text;

pub use containers::Change;
pub use decision::{Cause, Decision, Mutation, Refusal, Source, Unchanged, decide};
pub use names::{Names, NamesError};
pub use policy::{BadRule, Policy, PolicyError};

pub(crate) const MAX_RATIO: i64 = 64;

pub(crate) const WORKLOADS: [(&str, i64); 4] =
    [("training", 4), ("inference", 2), ("batch", 2), ("dev", 1)];

fn workload_ratio(workload: &str) -> Option<i64> {
    let known = WORKLOADS.iter().find(|(name, _)| *name == workload);
    known.map(|(_, ratio)| *ratio)
}

#[cfg(test)]
mod tests;
