//! Compiles the expressions of a mutation policy, and reports their errors by line and column.

use std::sync::Arc;

use tautline_cel::{CompileError, Environment, Issue, Program, ResultType};

use crate::environment::environment;
use crate::manifest::Problem;
use crate::matched_kinds::MatchedKinds;
use crate::model::{Binding, ExpressionSource, NamedExpression, PatchType, Policy};
use crate::mutation::CompiledMutation;
use crate::resolver::Variable;

/// A policy whose expressions are compiled and type-checked.
pub struct CompiledPolicy {
    /// The policy as it was parsed.
    pub policy: Policy,
    pub(crate) name: Arc<str>,
    pub(crate) conditions: Vec<CompiledCondition>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) mutations: Vec<CompiledMutation>,
}

/// A policy with its bindings, which are ordered by name.
pub(crate) struct BoundPolicy {
    pub policy: Arc<CompiledPolicy>,
    pub bindings: Vec<Arc<Binding>>,
}

pub(crate) struct CompiledCondition {
    pub name: String,
    pub program: Program,
}

impl CompiledPolicy {
    /// Compiles every expression of a policy and returns all errors. If a variable is invalid, only
    /// variables are compiled, because the other expressions may use it.
    pub(crate) fn new(policy: Policy) -> Result<Self, Vec<Problem>> {
        let mut found = Vec::new();
        let mut plain = environment(policy.param_kind.is_some());
        let mut patching = plain.clone().with_patch_types();
        let mut compile = |environment: &Environment, source: &ExpressionSource, result_type| {
            let program = environment.compile(source.text.trim(), result_type);
            program
                .map_err(|error| found.extend(problems(&policy, source, &error)))
                .ok()
        };
        let mut variables = Vec::new();
        for NamedExpression { name, source } in &policy.variables {
            let program = compile(&plain, source, ResultType::Any);
            let Some(program) = program else { continue };
            plain.declare_variable(name, program.clone());
            patching.declare_variable(name, program.clone());
            let name = name.clone();
            variables.push(Variable { name, program });
        }
        let complete = variables.len() == policy.variables.len();
        let (mut conditions, mut mutators) = (Vec::new(), Vec::new());
        if complete {
            for NamedExpression { name, source } in &policy.conditions {
                let program = compile(&plain, source, ResultType::Bool);
                let name = name.clone();
                conditions.extend(program.map(|program| CompiledCondition { name, program }));
            }
            for mutation in &policy.mutations {
                let program = compile(&patching, &mutation.source, result_type(mutation.patch));
                mutators.extend(program.map(|program| CompiledMutation {
                    field: mutation.source.field.clone(),
                    patch: mutation.patch,
                    program,
                }));
            }
        }
        if !found.is_empty() {
            return Err(found);
        }
        Ok(Self {
            name: policy.name.as_str().into(),
            policy,
            conditions,
            variables,
            mutations: mutators,
        })
    }

    /// Returns warnings about fields in mutations that no matched kind has. The API server accepts
    /// such a policy and refuses only the requests for which it builds such an object.
    pub(crate) fn unknown_fields(&self) -> Vec<Problem> {
        let policy = &self.policy;
        let Some(kinds) = MatchedKinds::from_constraints(&policy.constraints) else {
            return Vec::new();
        };
        let mut checking = environment(policy.param_kind.is_some())
            .with_patch_types()
            .with_object_schema(Arc::new(kinds));
        for variable in &self.variables {
            checking.declare_variable(&variable.name, variable.program.clone());
        }
        let found = policy.mutations.iter().flat_map(|mutation| {
            let text = mutation.source.text.trim();
            let found = checking.compile(text, result_type(mutation.patch)).err();
            found.map_or_else(Vec::new, |e| problems(policy, &mutation.source, &e))
        });
        found.collect()
    }
}

fn result_type(patch: PatchType) -> ResultType {
    match patch {
        PatchType::ApplyConfiguration => ResultType::Configuration,
        PatchType::JsonPatch => ResultType::JsonPatch,
    }
}

fn problems(policy: &Policy, source: &ExpressionSource, error: &CompileError) -> Vec<Problem> {
    // The text in the manifest may begin with blank lines.
    let cut = source.text.len() - source.text.trim_start().len();
    let before = &source.text[..cut];
    let lines = u32::try_from(before.matches('\n').count()).unwrap_or(0);
    let indent = before.rsplit('\n').next().unwrap_or_default();
    let indent = u32::try_from(indent.chars().count()).unwrap_or(0);
    let problem = |issue: &Issue| {
        let column = issue.column + if issue.line == 1 { indent } else { 0 };
        let hint = match issue.message.as_str() {
            "undeclared reference to 'params'" => ": the policy has no paramKind",
            _ => "",
        };
        Problem {
            object: format!("policy {}", policy.name),
            field: source.field.clone(),
            message: format!(
                "line {}, column {column}: {}{hint}",
                issue.line + lines,
                issue.message
            ),
        }
    };
    error.issues.iter().map(problem).collect()
}
