//! Declares the variables and types that a CEL expression may use, and compiles expressions into
//! programs.

use std::borrow::Cow;
use std::sync::Arc;

use crate::check::{Checker, depth};
use crate::declarations::{Declarations, ObjectSchema};
use crate::error::CompileError;
use crate::program::Program;
use crate::result::ResultType;
use crate::syntax::parse;
use crate::types::Type;

/// Declares the variables of expressions and compiles them.
#[derive(Clone, Default)]
pub struct Environment {
    declarations: Declarations,
}

impl Environment {
    /// Creates an environment without variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable. Its name may be dotted, such as `authorizer.requestResource`.
    pub fn declare(mut self, name: impl Into<Cow<'static, str>>, ty: Type) -> Self {
        self.declarations.names.push((name.into(), ty));
        self
    }

    /// Declares the types of the fields of [`Type::Record`]s. `fields` takes the names of the
    /// record and the field, and returns `None` for an unknown field.
    pub fn with_record_fields(mut self, fields: fn(&str, &str) -> Option<Type>) -> Self {
        self.declarations.record_fields = Some(fields);
        self
    }

    /// Declares `Object{..}`, `JSONPatch{..}` and `jsonpatch.escapeKey`, for mutations.
    pub fn with_patch_types(mut self) -> Self {
        self.declarations.patch_types = true;
        self
    }

    /// Checks the fields in `Object{..}` against a schema.
    pub fn with_object_schema(mut self, schema: Arc<dyn ObjectSchema>) -> Self {
        self.declarations.object_schema = Some(schema);
        self
    }

    /// Declares `variables.<name>` with the type of its program, which the resolver evaluates.
    pub fn declare_variable(&mut self, name: impl Into<String>, program: Program) {
        self.declarations.variables.push((name.into(), program));
    }

    /// Parses and type-checks an expression.
    ///
    /// # Errors
    /// Returns every issue with its line and column. Fails also for an expression that is too long,
    /// or too deep together with the variables it uses.
    pub fn compile(&self, source: &str, result_type: ResultType) -> Result<Program, CompileError> {
        let tree = parse(source).map_err(|issue| CompileError::at(source, vec![issue]))?;
        let levels = depth::levels(&tree, &self.declarations)
            .map_err(|issue| CompileError::at(source, vec![issue]))?;
        let mut checker = Checker::new(&self.declarations);
        let (ir, ty) = checker.check(&tree);
        checker.compare_literals();
        let ty = checker.inference.resolve(&ty, true);
        let mut issues = checker.issues;
        if checker.inference.exhausted() {
            let reason = "the expression's types are too large";
            issues = vec![(tree.at, reason.to_owned())];
        }
        if issues.is_empty()
            && let Some(expected) = result_type.mismatch(&ty)
        {
            issues.push((tree.at, format!("must evaluate to {expected} but got {ty}")));
        }
        if !issues.is_empty() {
            return Err(CompileError::at(source, issues));
        }
        Ok(Program::new(ir, ty, result_type, levels))
    }
}
