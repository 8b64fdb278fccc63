use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::value::{AccessCheck, Decision, Value};

/// A source of the values of the variables that an expression uses.
pub trait Resolver {
    /// Returns the value of a declared name, such as `object` or `variables.<name>`; `None` if it
    /// has no value. It is called at every use of a name, so an implementation should cache
    /// converted values. A program that it evaluates must spend the same budget.
    fn resolve(&self, name: &str, budget: &mut Budget) -> Option<Result<Value, EvaluationError>>;

    /// Answers `authorizer.….check(verb)`.
    ///
    /// # Errors
    /// The default implementation always fails, as it does not support access checks.
    fn authorize(&self, _check: &AccessCheck, _verb: &str) -> Result<Decision, EvaluationError> {
        Err(EvaluationError::failed(
            "authorizer: access checks are not supported here",
        ))
    }
}

impl Resolver for &[(&str, Value)] {
    fn resolve(&self, name: &str, _: &mut Budget) -> Option<Result<Value, EvaluationError>> {
        let found = self.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| Ok(value.clone()))
    }
}
