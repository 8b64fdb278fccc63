//! A policy with its expressions compiled: once, when it is loaded.

use std::sync::Arc;

use crate::cel::{CompileError, Declared, Environment, Program, Returns};
use crate::known::Kinds;
use crate::manifest::Problem;
use crate::model::{Named, PatchType, Policy, Source};
use crate::names::Variable;
use crate::step::Mutator;

/// A policy that is ready to run.
pub struct Compiled {
    /// The policy as it was read.
    pub policy: Policy,
    pub(crate) name: Arc<str>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) mutators: Vec<Mutator>,
}

pub(crate) struct Condition {
    pub name: String,
    pub program: Program,
}

impl Compiled {
    /// Compiles every expression of a policy.
    ///
    /// # Errors
    /// Everything that is wrong with any of them, by field, line and column. A
    /// variable that does not compile is reported alone, not with its users.
    pub fn new(policy: Policy) -> Result<Self, Vec<Problem>> {
        let mut found = Vec::new();
        let mut environment = Environment::new(Declared {
            params: policy.param_kind.is_some(),
            authorizer: true,
            ..Declared::default()
        });
        let mut patching = Environment::new(Declared {
            params: policy.param_kind.is_some(),
            authorizer: true,
            patch_types: true,
            ..Declared::default()
        });
        let mut compile = |environment: &Environment, source: &Source, returns| {
            let program = environment.compile(source.text.trim(), returns);
            program
                .map_err(|error| found.extend(problems(&policy.name, source, &error)))
                .ok()
        };
        let mut variables = Vec::new();
        for Named { name, source } in &policy.variables {
            let program = compile(&environment, source, Returns::Any);
            // Whoever uses a variable at fault is not at fault for that.
            let Some(program) = program else { continue };
            environment.declare(name, program.clone());
            patching.declare(name, program.clone());
            let name = name.clone();
            variables.push(Variable { name, program });
        }
        let complete = variables.len() == policy.variables.len();
        let (mut conditions, mut mutators) = (Vec::new(), Vec::new());
        if complete {
            for Named { name, source } in &policy.conditions {
                let program = compile(&environment, source, Returns::Bool);
                let name = name.clone();
                conditions.extend(program.map(|program| Condition { name, program }));
            }
            for mutation in &policy.mutations {
                let program = compile(&patching, &mutation.source, returns(mutation.patch));
                mutators.extend(program.map(|program| Mutator {
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
            mutators,
        })
    }

    /// Fields in mutations that none of the kinds has for which the policy is.
    /// The API server takes such a policy, and refuses only requests for which it
    /// makes such an object: so this is odd, and not wrong.
    pub(crate) fn unknown_fields(&self) -> Vec<Problem> {
        let policy = &self.policy;
        let Some(kinds) = Kinds::of(&policy.constraints) else {
            return Vec::new();
        };
        let variables = self.variables.iter();
        let checking = Environment::new(Declared {
            params: policy.param_kind.is_some(),
            authorizer: true,
            patch_types: true,
            variables: variables
                .map(|v| (v.name.clone(), v.program.clone()))
                .collect(),
            fields: Some(Arc::new(kinds)),
        });
        let found = policy.mutations.iter().flat_map(|mutation| {
            let text = mutation.source.text.trim();
            let found = checking.compile(text, returns(mutation.patch)).err();
            found.map_or_else(Vec::new, |e| problems(&policy.name, &mutation.source, &e))
        });
        found.collect()
    }
}

fn returns(patch: PatchType) -> Returns {
    match patch {
        PatchType::ApplyConfiguration => Returns::Configuration,
        PatchType::JsonPatch => Returns::JsonPatch,
    }
}

fn problems(policy: &str, source: &Source, error: &CompileError) -> Vec<Problem> {
    let first = (error.line, error.column, &error.message);
    let more = error.more.iter().map(|f| (f.line, f.column, &f.message));
    // The text as it stands in the manifest may begin with blank lines.
    let cut = source.text.len() - source.text.trim_start().len();
    let before = &source.text[..cut];
    let lines = u32::try_from(before.matches('\n').count()).unwrap_or(0);
    let indent = before.rsplit('\n').next().unwrap_or_default();
    let indent = u32::try_from(indent.chars().count()).unwrap_or(0);
    let all = std::iter::once(first).chain(more);
    all.map(|(line, column, message)| {
        let column = if line == 1 { column + indent } else { column };
        Problem {
            object: format!("policy {policy}"),
            field: source.field.clone(),
            message: format!("line {}, column {column}: {message}", line + lines),
        }
    })
    .collect()
}
