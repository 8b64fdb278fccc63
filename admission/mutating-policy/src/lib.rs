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

mod compiled;
pub mod defaults;
mod draft;
mod environment;
mod json_patch;
mod known;
mod manifest;
mod matching;
pub mod model;
mod names;
mod outcome;
mod params;
mod policies;
mod request;
mod run;
mod step;
mod strict;
mod typed;
mod usual;
mod world;

pub use compiled::Compiled;
pub use environment::environment;
pub use manifest::Problem;
pub use matching::Mismatch;
pub use outcome::{End, Fault, FaultKind, Invocation, Outcome, PassedOver, Refusal, Step, Verdict};
pub use policies::{Loaded, Policies, Report, check};
pub use request::{Kind, Request, Resource};
pub use run::Settings;
pub use tautline_cel::Limits;
pub use world::{By, Lies, Objects, Wanted, World};

/// Expression results are at most as deep as the objects that are merged.
const _: () =
    assert!(tautline_cel::MAX_RESULT_DEPTH as usize == tautline_structured_merge::MAX_DEPTH);
