//! Compiles and evaluates Kubernetes' expression language: [CEL](https://cel.dev) with the
//! functions and types of Kubernetes 1.36. Expressions are type-checked, and their cost is bounded.
//! Evaluation needs a stack of 2 MiB, the size with which unoptimised builds are tested. The README
//! lists the functions, the differences from Kubernetes, the cost units and the limits.
//!
//! ```
//! use tautline_cel::{Budget, Environment, ResultType, Type, Value};
//!
//! let environment = Environment::new().declare("object", Type::Dyn);
//! let program = environment.compile(
//!     "object.spec.replicas <= 5 && quantity(object.spec.memory).isLessThan(quantity('1Gi'))",
//!     ResultType::Bool,
//! )?;
//!
//! let object = serde_json::json!({"spec": {"replicas": 3, "memory": "512Mi"}});
//! let variables = [("object", Value::from(&object))];
//! let mut budget = Budget::default();
//! let value = program.evaluate(&variables.as_slice(), &mut budget)?;
//! assert!(matches!(value, Value::Bool(true)));
//! assert!(budget.cost_units() < 100);
//!
//! let error = environment.compile("object.name.sise() > 5", ResultType::Bool).unwrap_err();
//! assert!(error.issues[0].message.starts_with("undeclared reference to 'sise'"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

mod budget;
mod check;
mod declarations;
mod environment;
mod error;
mod eval;
mod ir;
mod library;
mod pattern;
mod program;
mod resolver;
mod result;
mod syntax;
mod types;
mod value;

pub use budget::{Budget, Limits};
pub use declarations::ObjectSchema;
pub use environment::Environment;
pub use error::{CompileError, EvaluationError, Exhausted, Issue};
pub use program::Program;
pub use resolver::Resolver;
pub use result::{MAX_RESULT_DEPTH, ResultType};
pub use syntax::MAX_SOURCE_BYTES;
pub use types::Type;
pub use value::{
    AccessCheck, Cidr, Decision, Key, Map, NamedFormat, Object, Patch, Quantity, ResourceCheck,
    Subject, Url, Value,
};

/// Compiles and evaluates a text for every result type. The fuzz target and the test of its corpus
/// call this function.
#[doc(hidden)]
pub fn fuzz_source(data: &[u8]) {
    struct Constant(Value);
    impl Resolver for Constant {
        fn resolve(&self, _: &str, _: &mut Budget) -> Option<Result<Value, EvaluationError>> {
            Some(Ok(self.0.clone()))
        }
    }
    let Ok(source) = std::str::from_utf8(data) else {
        return;
    };
    let names = ["object", "oldObject", "params"];
    let environment = names
        .iter()
        .fold(Environment::new(), |e, name| e.declare(*name, Type::Dyn))
        .declare("authorizer", Type::AUTHORIZER)
        .with_patch_types();
    let object = serde_json::json!({"metadata": {"name": "a", "labels": {"a/b": "c"}},
        "spec": {"containers": [{"name": "a", "image": "b", "resources": {"limits": {"cpu": "1"}}}],
            "items": [1, 2.5, null, "x", true, []]}});
    let resolver = Constant((&object).into());
    for result_type in [
        ResultType::Any,
        ResultType::Bool,
        ResultType::Configuration,
        ResultType::JsonPatch,
    ] {
        let Ok(program) = environment.compile(source, result_type) else {
            continue;
        };
        let limits = Limits {
            cost_units: 100_000,
            ..Limits::default()
        };
        if let Ok(value) = program.evaluate(&resolver, &mut Budget::new(limits)) {
            _ = value.to_json();
        }
    }
}
