//! Evaluates Kubernetes' mutating admission policies without an API server. It parses policies and
//! bindings ([`model`]) and evaluates them for a request ([`Policies::mutate`]); [`ClusterView`]
//! returns the objects that policies read from the cluster.
//!
//! A policy has the effect of a MutatingAdmissionPolicy of Kubernetes 1.36, with these
//! differences: policies run in the order of their names; matchConditions may use variables;
//! the functions and spellings of 2024 are supported; cost units differ; a policy that matches
//! another version of a resource sees the object in the version of the request.

#![warn(missing_docs)]

mod built_in;
mod canonical_quantity;
mod cluster;
mod compiled;
pub mod defaults;
mod environment;
mod evaluation;
mod json_patch;
mod lazy_value;
mod manifest;
mod matched_kinds;
mod matching;
pub mod model;
mod mutation;
mod objects;
mod outcome;
mod params;
mod policies;
mod pruning;
mod request;
mod request_context;
mod resolver;
mod static_cluster;
mod strict_decoding;
mod working_copy;

pub use cluster::{ClusterView, ParamQuery, ParamSelector, Refusal, ResourceScope};
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
pub use static_cluster::{Creation, StaticCluster};
pub use tautline_cel::Limits;

/// The results of expressions may be exactly as deep as the objects that can be merged.
const _: () =
    assert!(tautline_cel::MAX_RESULT_DEPTH as usize == tautline_structured_merge::MAX_DEPTH);
