//! Runs one policy on the object of a request, for one binding and parameter: conditions, then
//! mutations.

use std::sync::Arc;

use super::{Evaluation, Invocation};
use crate::json_patch::{BYTES_PER_UNIT, size};
use crate::model::Reinvocation;
use crate::mutation::{CompiledMutation, MutationError};
use crate::outcome::{FaultKind, InvocationEnd, InvocationReport, MutationReport};
use crate::params;
use crate::resolver::PolicyResolver;
use tautline_cel::{Budget, EvaluationError, Exhausted, Value};

/// The size of the largest object that a mutation may build, in bytes. The API server accepts 3
/// MiB.
const MAX_OBJECT_BYTES: usize = 4 << 20;
/// The cost units that a policy may spend on a request, in multiples of an expression's limit.
const POLICY_BUDGET_FACTOR: u64 = 3;

impl Evaluation<'_> {
    pub(super) fn invoke(&mut self, due: &Invocation<'_>, pass: u8) {
        let policy = &due.bound.policy;
        let mut invocation = InvocationReport {
            policy: policy.name.clone(),
            binding: due.binding.name.as_str().into(),
            param: due.param.as_ref().map(|p| params::name(&p.json)),
            pass,
            end: InvocationEnd::Unchanged,
            condition: None,
            condition_cost_units: 0,
            steps: Vec::new(),
        };
        let conditions_hold = self.conditions(due, &mut invocation);
        self.spend(&policy.name, invocation.condition_cost_units);
        match conditions_hold {
            Ok(true) => {}
            Ok(false) => {
                // The second pass reports only invocations that run again.
                if pass == 1 {
                    self.outcome.invocations.push(invocation);
                }
                return;
            }
            Err((kind, message)) => {
                self.fault(due.bound, Some(due.binding), kind, message);
                invocation.end = InvocationEnd::Failed;
                self.outcome.invocations.push(invocation);
                return;
            }
        }
        let key = due.key();
        if pass > 1 && !self.reinvocable.contains(&key) {
            return;
        }
        if policy.policy.reinvocation == Reinvocation::IfNeeded {
            self.reinvocable.insert(key);
        }
        if !self.object.json.is_null() {
            for mutator in &policy.mutations {
                self.mutate(due, mutator, &mut invocation);
            }
        }
        self.outcome.invocations.push(invocation);
    }

    /// Returns whether all conditions are true. A false condition takes precedence over errors.
    fn conditions(
        &self,
        due: &Invocation<'_>,
        invocation: &mut InvocationReport,
    ) -> Result<bool, (FaultKind, String)> {
        let policy = &due.bound.policy;
        if policy.conditions.is_empty() {
            return Ok(true);
        }
        let scope = PolicyResolver::new(
            &self.context,
            &self.object,
            due.param.as_ref(),
            &policy.variables,
            false,
        );
        let mut budget = self.budget(&policy.name);
        let mut errors = Vec::new();
        for condition in &policy.conditions {
            let result = condition.program.evaluate(&scope, &mut budget);
            invocation.condition_cost_units = budget.cost_units();
            match result {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => {
                    invocation.end = InvocationEnd::Skipped;
                    invocation.condition = Some(condition.name.clone());
                    return Ok(false);
                }
                Ok(_) => errors.push(EvaluationError::failed("the condition is not a bool")),
                Err(error) => errors.push(error),
            }
        }
        let Some(first) = errors.first() else {
            return Ok(true);
        };
        let kind = if first.is_exhausted() {
            FaultKind::Budget
        } else {
            FaultKind::Condition
        };
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Err((kind, texts.join(", ")))
    }

    /// Runs a mutation. An error leaves the object unchanged; the next mutation still runs.
    fn mutate(
        &mut self,
        due: &Invocation<'_>,
        mutator: &CompiledMutation,
        invocation: &mut InvocationReport,
    ) {
        let mut budget = self.budget(&due.bound.policy.name);
        let scope = PolicyResolver::new(
            &self.context,
            &self.object,
            due.param.as_ref(),
            &due.bound.policy.variables,
            true,
        );
        let result = if self.deadline_passed() {
            Err(EvaluationError::Exhausted(Exhausted::Deadline).into())
        } else {
            mutator.apply(&scope, &self.state, &mut self.working_copy, &mut budget)
        };
        let (result, copied) = self.check_object_size(result);
        let full = self.settings.full_detail;
        let mut step = MutationReport {
            field: mutator.field.clone(),
            cost_units: budget.cost_units(),
            variables: if full {
                scope.used_variables()
            } else {
                Vec::new()
            },
            diff: None,
            changed: false,
            error: None,
        };
        self.spend(&due.bound.policy.name, budget.cost_units() + copied);
        match result {
            Ok(made) => {
                if self.set_defaults(made, mutator.patch) {
                    let object = self.working_copy.get();
                    step.changed = true;
                    step.diff = full.then(|| json_patch::diff(&self.object.json, object));
                    self.object.update(object);
                    self.working_copy.mark_synced();
                    self.changed = true;
                    if invocation.end == InvocationEnd::Unchanged {
                        invocation.end = InvocationEnd::Changed;
                    }
                }
                invocation.steps.push(step);
            }
            Err(MutationError(kind, message)) => {
                step.error = Some(message.clone());
                invocation.steps.push(step);
                invocation.end = InvocationEnd::Failed;
                self.fault(due.bound, Some(due.binding), kind, message);
            }
        }
    }

    /// Refuses an object that has become too large. Also returns the cost units for the object,
    /// including its copy.
    fn check_object_size(
        &self,
        result: Result<bool, MutationError>,
    ) -> (Result<bool, MutationError>, u64) {
        let units = |bytes: usize| (bytes / BYTES_PER_UNIT) as u64;
        let bytes = match &result {
            Ok(true) => size(self.working_copy.get()),
            Ok(false) | Err(MutationError(FaultKind::Patch | FaultKind::Object, _)) => {
                return (result, units(size(&self.object.json)));
            }
            Err(_) => return (result, 0),
        };
        if bytes > MAX_OBJECT_BYTES && bytes > size(&self.object.json) {
            let message = format!("the object would have more than {MAX_OBJECT_BYTES} bytes");
            let fault = MutationError(FaultKind::Budget, message);
            return (Err(fault), units(bytes));
        }
        (result, units(bytes))
    }

    fn spend(&mut self, policy: &Arc<str>, units: u64) {
        let spent = self.spent_units.entry(policy.clone()).or_default();
        *spent = spent.saturating_add(units);
    }

    /// Returns a budget for expressions of a policy, bounded by the rest of the policy's own
    /// budget.
    fn budget(&self, policy: &Arc<str>) -> Budget {
        let mut limits = self.settings.limits;
        let all = limits.cost_units.saturating_mul(POLICY_BUDGET_FACTOR);
        let left = all.saturating_sub(self.spent_units.get(policy).copied().unwrap_or(0));
        limits.cost_units = limits.cost_units.min(left);
        Budget::new(limits)
    }
}
