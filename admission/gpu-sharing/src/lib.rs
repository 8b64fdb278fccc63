//! Replaces requests for whole GPUs with requests for units of shared GPUs: CastSlice's
//! contract (<https://github.com/castops/cast-slice>), decided on a pod's JSON.
//!
//! A pod opts in by the annotation `castops.io/optimize: "true"`, or a rule of the
//! [`Policy`] matches it; `"false"` opts out. Then each container, init containers
//! too, that asks N cards gets N times the ratio of the shared resource instead,
//! in limits and requests alike. The ratio is, from the strongest on: the
//! annotation `castops.io/slice-ratio`, the annotation `castops.io/workload-type`,
//! the rule's `sliceRatio`, the rule's `workloadType`, 1. Annotations may be of
//! the domain `tautline.io` as well.
//!
//! Pure: what reads the policy and serves HTTP lives elsewhere.

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

/// The most units that one card may be cut into.
pub const MAX_RATIO: i64 = 64;

/// The ratio of each workload type.
pub const WORKLOADS: [(&str, i64); 4] =
    [("training", 4), ("inference", 2), ("batch", 2), ("dev", 1)];

/// The ratio of a workload type; `None`: there is no such type.
fn workload_ratio(workload: &str) -> Option<i64> {
    let known = WORKLOADS.iter().find(|(name, _)| *name == workload);
    known.map(|(_, ratio)| *ratio)
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod properties;
