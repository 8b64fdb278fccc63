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

pub mod cel;
mod compiled;
pub mod defaults;
mod draft;
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
pub use manifest::Problem;
pub use matching::Mismatch;
pub use outcome::{End, Fault, FaultKind, Invocation, Outcome, PassedOver, Refusal, Step, Verdict};
pub use policies::{Loaded, Policies, Report, check};
pub use request::{Kind, Request, Resource};
pub use run::Settings;
pub use world::{By, Lies, Objects, Wanted, World};

/// Compiles a text as every kind of expression and works it out: for the fuzz
/// target, and for the replay of its corpus.
#[doc(hidden)]
pub fn fuzz_source(data: &[u8]) {
    use cel::{Budget, Declared, Environment, Limits, Names, Returns, RunError, Value};

    struct Any(Value);
    impl Names for Any {
        fn get(&self, _: &str, _: &mut Budget) -> Option<Result<Value, RunError>> {
            Some(Ok(self.0.clone()))
        }
    }
    let Ok(source) = std::str::from_utf8(data) else {
        return;
    };
    let environment = Environment::new(Declared {
        params: true,
        authorizer: true,
        patch_types: true,
        ..Declared::default()
    });
    let object = serde_json::json!({"metadata": {"name": "a", "labels": {"a/b": "c"}},
        "spec": {"containers": [{"name": "a", "image": "b", "resources": {"limits": {"cpu": "1"}}}],
            "items": [1, 2.5, null, "x", true, []]}});
    let names = Any((&object).into());
    for returns in [
        Returns::Any,
        Returns::Bool,
        Returns::Configuration,
        Returns::JsonPatch,
    ] {
        let Ok(program) = environment.compile(source, returns) else {
            continue;
        };
        let limits = Limits {
            cost_units: 100_000,
            ..Limits::default()
        };
        let mut budget = Budget::new(limits);
        if let Ok(value) = program.run(&names, &mut budget) {
            _ = value.to_json();
        }
    }
}
