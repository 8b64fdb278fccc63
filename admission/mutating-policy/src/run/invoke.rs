//! One invocation: a policy with a binding and a parameter.

use std::sync::Arc;

use super::{Due, Session, Stop, refusal};
use crate::json_patch::{BYTES_A_UNIT, size};
use crate::model::Reinvocation;
use crate::names::Scope;
use crate::outcome::{End, FaultKind, Invocation, Step};
use crate::params;
use crate::step::{Mutator, StepError};
use tautline_cel::{Budget, EvaluationError, Exhausted, Value};

/// Bytes of the largest object that a mutation may make: the API server takes 3
/// MiB.
const OBJECT_BYTES: usize = 4 << 20;
/// What a policy may spend on one request, in what one expression may.
const SHARES: u64 = 3;

impl Session<'_> {
    pub(super) fn invoke(&mut self, due: &Due<'_>, pass: u8) -> Result<(), Stop> {
        let policy = &due.bound.policy;
        let mut invocation = Invocation {
            policy: policy.name.clone(),
            binding: due.binding.name.as_str().into(),
            param: due.param.as_ref().map(|p| params::name(&p.json)),
            pass,
            end: End::Unchanged,
            condition: None,
            condition_cost_units: 0,
            steps: Vec::new(),
        };
        let held = self.conditions(due, &mut invocation);
        self.spend(&policy.name, invocation.condition_cost_units);
        match held {
            Ok(true) => {}
            Ok(false) => {
                // The second pass tells only what ran again.
                if pass == 1 {
                    self.outcome.invocations.push(invocation);
                }
                return Ok(());
            }
            Err((kind, message)) => {
                self.fault(due.bound, Some(due.binding), kind, message);
                invocation.end = End::Failed;
                self.outcome.invocations.push(invocation);
                return Ok(());
            }
        }
        let key = due.key();
        if pass > 1 && !self.again.contains(&key) {
            return Ok(());
        }
        if policy.policy.reinvocation == Reinvocation::IfNeeded {
            self.again.insert(key);
        }
        let mut stop = Ok(());
        // There is nothing to change in what has no object.
        if !self.object.json.is_null() {
            for mutator in &policy.mutators {
                stop = self.step(due, mutator, &mut invocation);
                if stop.is_err() {
                    break;
                }
            }
        }
        self.outcome.invocations.push(invocation);
        stop
    }

    /// Whether all conditions hold. One that is false outweighs any error.
    fn conditions(
        &self,
        due: &Due<'_>,
        invocation: &mut Invocation,
    ) -> Result<bool, (FaultKind, String)> {
        let policy = &due.bound.policy;
        if policy.conditions.is_empty() {
            return Ok(true);
        }
        let scope = Scope::new(
            &self.around,
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
                    invocation.end = End::Skipped;
                    invocation.condition = Some(condition.name.clone());
                    return Ok(false);
                }
                Ok(_) => errors.push(EvaluationError::failed("the condition is no bool")),
                Err(error) => errors.push(error),
            }
        }
        let Some(first) = errors.first() else {
            return Ok(true);
        };
        let kind = match first.is_exhausted() {
            true => FaultKind::Budget,
            false => FaultKind::Condition,
        };
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Err((kind, texts.join(", ")))
    }

    /// One mutation. An error leaves the object as it was, and the next mutation
    /// has its turn all the same.
    fn step(
        &mut self,
        due: &Due<'_>,
        mutator: &Mutator,
        invocation: &mut Invocation,
    ) -> Result<(), Stop> {
        let mut budget = self.budget(&due.bound.policy.name);
        let scope = Scope::new(
            &self.around,
            &self.object,
            due.param.as_ref(),
            &due.bound.policy.variables,
            true,
        );
        let result = if self.late() {
            Err(EvaluationError::Exhausted(Exhausted::Deadline).into())
        } else {
            mutator.run(&scope, &self.known, &mut self.draft, &mut budget)
        };
        let (result, copied) = self.bounded(result);
        let full = self.settings.full_detail;
        let mut step = Step {
            field: mutator.field.clone(),
            cost_units: budget.cost_units(),
            variables: if full { scope.used() } else { Vec::new() },
            diff: None,
            changed: false,
            error: None,
        };
        self.spend(&due.bound.policy.name, budget.cost_units() + copied);
        match result {
            Ok(made) => {
                if self.settle(made, mutator.patch) {
                    let object = self.draft.made();
                    step.changed = true;
                    step.diff = full.then(|| json_patch::diff(&self.object.json, object));
                    self.object.follow(object);
                    self.draft.taken();
                    self.changed = true;
                    if invocation.end == End::Unchanged {
                        invocation.end = End::Changed;
                    }
                }
                invocation.steps.push(step);
                Ok(())
            }
            Err(error) => {
                let (kind, message) = match error {
                    StepError::Fault(kind, message) => (kind, message),
                    StepError::Abort(message) => (FaultKind::Object, message),
                };
                step.error = Some(message.clone());
                invocation.steps.push(step);
                invocation.end = End::Failed;
                self.fault(due.bound, Some(due.binding), kind, message.clone());
                if kind == FaultKind::Object {
                    return Err(Stop(refusal(500, "InternalError", vec![message])));
                }
                Ok(())
            }
        }
    }

    /// Refuses what grew beyond any object; the units of copying it, or, where
    /// there is no new one, of the copy that was made in vain.
    fn bounded(&self, result: Result<bool, StepError>) -> (Result<bool, StepError>, u64) {
        let units = |bytes: usize| (bytes / BYTES_A_UNIT) as u64;
        let bytes = match &result {
            Ok(true) => size(self.draft.made()),
            Ok(false) | Err(StepError::Fault(FaultKind::Patch, _)) => {
                return (result, units(size(&self.object.json)));
            }
            Err(_) => return (result, 0),
        };
        if bytes > OBJECT_BYTES && bytes > size(&self.object.json) {
            let message = format!("the object would have more than {OBJECT_BYTES} bytes");
            let fault = StepError::Fault(FaultKind::Budget, message);
            return (Err(fault), units(bytes));
        }
        (result, units(bytes))
    }

    fn spend(&mut self, policy: &Arc<str>, units: u64) {
        let spent = self.spent.entry(policy.clone()).or_default();
        *spent = spent.saturating_add(units);
    }

    /// A budget for some expressions of a policy, within what is left to it.
    fn budget(&self, policy: &Arc<str>) -> Budget {
        let mut limits = self.settings.limits;
        let all = limits.cost_units.saturating_mul(SHARES);
        let left = all.saturating_sub(self.spent.get(policy).copied().unwrap_or(0));
        limits.cost_units = limits.cost_units.min(left);
        Budget::new(limits)
    }
}
