//! Defines a compiled CEL expression, and evaluates it within a budget of cost, memory and time.

use std::sync::Arc;

use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::eval::Evaluator;
use crate::ir::{Ir, Levels};
use crate::library::declaration::CallContext;
use crate::resolver::Resolver;
use crate::result::{self, ResultType};
use crate::types::Type;
use crate::value::Value;

/// A checked expression.
#[derive(Clone, Debug)]
pub struct Program {
    ir: Arc<Ir>,
    ty: Type,
    result_type: ResultType,
    pub(crate) levels: Levels,
}

impl Program {
    pub(crate) fn new(ir: Ir, ty: Type, result_type: ResultType, levels: Levels) -> Self {
        Self {
            ir: Arc::new(ir),
            ty,
            result_type,
            levels,
        }
    }

    /// Returns the type of the result.
    pub fn result_type(&self) -> &Type {
        &self.ty
    }

    /// Evaluates the expression.
    ///
    /// # Errors
    /// Fails with the expression's own error or with the limit of the budget that was reached.
    pub fn evaluate(
        &self,
        resolver: &dyn Resolver,
        budget: &mut Budget,
    ) -> Result<Value, EvaluationError> {
        let mut evaluator = Evaluator {
            context: CallContext { budget, resolver },
            stack: Vec::new(),
        };
        // The program of a variable is evaluated within the program that uses it, so that every
        // program counts as a level.
        evaluator.context.budget.enter()?;
        let value = evaluator.eval(&self.ir);
        evaluator.context.budget.leave();
        let value = value?;
        result::check_size(&value, evaluator.context.budget)?;
        if matches!(
            self.result_type,
            ResultType::Configuration | ResultType::JsonPatch
        ) {
            result::check_type_names(&value)?;
        }
        Ok(value)
    }
}
