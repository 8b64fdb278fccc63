//! Kubernetes 1.36's expression language (CEL) as mutating admission policies
//! have it.
//!
//! [`Environment::compile`] checks an expression against what is declared;
//! [`Program::run`] works it out within a [`Budget`].
//!
//! # Why no evaluator, nor parser, of another crate
//! The `cel` crate (0.15) was measured first, on sources of 16 KiB. Its ANTLR
//! parser takes up to 370 ms and 220 MB; its other one is hidden from its API
//! and takes 1.3 s for a chain of 4,000 calls; neither lets a caller count
//! nodes, and trees of any depth are evaluated and dropped by recursion. Its
//! evaluator has no cost, copies strings and lists unmetered, and has neither a
//! type checker nor two-variable comprehensions. The promise here is that any
//! expression is refused or stopped within 100 ms and 50 MB, so depth is bounded
//! in parsing, values are shared, and everything that can grow is charged first.
//!
//! # What callers see to
//! A stack of 2 MiB, which unoptimised builds were tested on, and as many variables
//! as they care to hold. [`Names::get`] is asked at every use of a name, so it keeps what it converted.

mod access;
mod ast;
mod authorizer;
mod budget;
mod check;
mod check_calls;
mod check_objects;
mod compare;
mod declaration;
mod depth;
mod error;
mod eval;
mod ir;
mod json;
mod lex;
mod library;
mod literals;
mod loops;
mod parse;
mod records;
mod types;
mod value;

use std::sync::Arc;

use check::Checker;
use declaration::Scope;
use eval::Run;
use ir::Ir;

pub use authorizer::{Check, Decision, ResourceCheck, Subject};
pub use budget::{Budget, Limits};
pub use error::{CompileError, Exhausted, Finding, RunError};
pub use library::{Cidr, NamedFormat, Quantity, Url};
pub use types::Type;
pub use value::{Key, Map, Object, Patch, Value};

/// Bytes of the longest source that is compiled.
pub const SOURCE_BYTES: usize = 16 << 10;

/// What is known of the object's type, for checking `Object{..}`.
pub trait Fields: Send + Sync {
    /// Whether the field is there, from the root by field names, lists and maps
    /// passed through; none if that is not known.
    fn has(&self, path: &[&str]) -> Option<bool>;
}

/// What expressions may use.
#[derive(Clone, Default)]
pub struct Declared {
    /// `params` is declared, as with a paramKind.
    pub params: bool,
    /// `authorizer` is declared.
    pub authorizer: bool,
    /// `Object{..}`, `JSONPatch{..}` and `jsonpatch.escapeKey` are, as in mutations.
    pub patch_types: bool,
    /// `variables.<name>` and what makes them, in the order of declaration.
    pub variables: Vec<(String, Program)>,
    /// The object's fields, when its type is known.
    pub fields: Option<Arc<dyn Fields>>,
}

impl Declared {
    /// What makes `variables.<name>`.
    fn variable(&self, name: &str) -> Option<&Program> {
        let mut latest = self.variables.iter().rev();
        latest.find(|(other, _)| other == name).map(|(_, of)| of)
    }
}

/// The type an expression must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// `bool`, as in matchConditions.
    Bool,
    /// Any type, as in variables.
    Any,
    /// `Object`, as in an ApplyConfiguration.
    Configuration,
    /// `list(JSONPatch)`.
    JsonPatch,
}

impl Returns {
    /// The wanted type, if this is another one.
    fn unmet(self, of: &Type) -> Option<&'static str> {
        match (self, of) {
            (Self::Any, _) | (Self::Bool, Type::Bool) => None,
            (Self::Bool, _) => Some("bool"),
            (Self::Configuration, Type::Object { name, .. }) if &**name == "Object" => None,
            (Self::Configuration, _) => Some("Object"),
            (Self::JsonPatch, Type::List(of)) if **of == Type::Record("JSONPatch") => None,
            (Self::JsonPatch, _) => Some("list(JSONPatch)"),
        }
    }
}

/// Compiles expressions over what is declared.
#[derive(Clone, Default)]
pub struct Environment {
    declared: Declared,
}

impl Environment {
    /// An environment of Kubernetes 1.36's functions and these declarations.
    pub fn new(declared: Declared) -> Self {
        Self { declared }
    }

    /// Declares one more variable, `variables.<name>`.
    pub fn declare(&mut self, name: impl Into<String>, variable: Program) {
        self.declared.variables.push((name.into(), variable));
    }

    /// Checks an expression.
    ///
    /// # Errors
    /// Its syntax, undeclared names and functions, ill-typed calls and
    /// literals, the type of the whole, and what is too long or, with the
    /// variables it names, too deep.
    pub fn compile(&self, source: &str, returns: Returns) -> Result<Program, CompileError> {
        let tree = parse::parse(source).map_err(|found| CompileError::at(source, vec![found]))?;
        let levels = depth::levels(&tree, &self.declared)
            .map_err(|found| CompileError::at(source, vec![found]))?;
        let mut checker = Checker::new(&self.declared);
        let (ir, of) = checker.check(&tree);
        checker.compare_literals();
        let of = checker.found.resolve(&of, true);
        let mut refusals = checker.refusals;
        if checker.found.exhausted() {
            let reason = "the expression's types are too large";
            refusals = vec![(tree.at, reason.to_owned())];
        }
        if refusals.is_empty()
            && let Some(wanted) = returns.unmet(&of)
        {
            refusals.push((tree.at, format!("must evaluate to {wanted} but got {of}")));
        }
        if refusals.is_empty() {
            Ok(Program {
                ir: Arc::new(ir),
                of,
                returns,
                levels,
            })
        } else {
            Err(CompileError::at(source, refusals))
        }
    }
}

/// A checked expression.
#[derive(Clone, Debug)]
pub struct Program {
    ir: Arc<Ir>,
    of: Type,
    returns: Returns,
    levels: depth::Levels,
}

/// Where expressions find what they name.
pub trait Names {
    /// The value of a declared name: `object`, `oldObject`, `request`, `params`,
    /// `namespaceObject` or `variables.<name>`; none if there is none. A variable
    /// worked out here spends from the same budget.
    fn get(&self, name: &str, budget: &mut Budget) -> Option<Result<Value, RunError>>;

    /// Answers a question put to `authorizer`.
    ///
    /// # Errors
    /// When questions are not answered here.
    fn authorize(&self, _check: &Check, _verb: &str) -> Result<Decision, RunError> {
        Err(RunError::failed(
            "authorizer: questions are not answered here",
        ))
    }
}

impl Program {
    /// The type of the result.
    pub fn returns(&self) -> &Type {
        &self.of
    }

    /// Works the expression out.
    ///
    /// # Errors
    /// The expression's own, or the bound of the budget that was reached.
    pub fn run(&self, names: &dyn Names, budget: &mut Budget) -> Result<Value, RunError> {
        let mut run = Run {
            scope: Scope { budget, names },
            stack: Vec::new(),
        };
        // Variables use variables: they stand on one stack.
        run.scope.budget.enter()?;
        let value = run.eval(&self.ir);
        run.scope.budget.leave();
        let value = value?;
        value.bounded(run.scope.budget)?;
        if matches!(self.returns, Returns::Configuration | Returns::JsonPatch) {
            value.named_by_path()?;
        }
        Ok(value)
    }
}
