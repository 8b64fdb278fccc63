//! Kubernetes' mutating admission policies, worked out without an API server:
//! the expressions ([`cel`]), the policies and their bindings ([`model`]), and
//! what they make of a request ([`Policies::mutate`]). Nothing here knows HTTP,
//! clients or threads; what policies ask of a cluster, [`World`] answers.
//!
//! What is done is what Kubernetes 1.36 does with a MutatingAdmissionPolicy. It
//! differs in this: policies run in the order of their names; matchConditions may
//! use variables; functions and spellings of 2024 are taken, too; costs are
//! bounded, but not by the API server's exact figures; a policy that matches
//! another version of a resource sees the object in the version in which it came.

mod canonical_quantity;
mod cluster;
mod compiled;
pub mod defaults;
mod environment;
mod evaluation;
mod json_patch;
mod manifest;
mod matched_kinds;
mod matching;
pub mod model;
mod mutation;
mod outcome;
mod params;
mod policies;
mod pruning;
mod request;
mod resolver;
mod strict_decoding;
mod working_copy;

pub use cluster::{ClusterView, ParamQuery, ParamSelector, ResourceScope, StaticCluster};
pub use compiled::CompiledPolicy;
pub use environment::environment;
pub use evaluation::Settings;
pub use manifest::Problem;
pub use matching::Mismatch;
pub use outcome::{
    Denial, Fault, FaultKind, InvocationEnd, InvocationReport, MutationReport, Outcome,
    SkippedPolicy, Verdict,
};
pub use policies::{LoadReport, LoadedObject, Policies, check};
pub use request::{Kind, Request, Resource};
pub use tautline_cel::Limits;

/// Expression results are at most as deep as the objects that are merged.
const _: () =
    assert!(tautline_cel::MAX_RESULT_DEPTH as usize == tautline_structured_merge::MAX_DEPTH);
