//! Evaluates all policies for a request, as the API server's dispatcher does (k8s.io/apiserver
//! 0.36.3, pkg/admission/plugin/policy: generic and mutating).

mod invoke;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use crate::cluster::ClusterView;
use crate::compiled::BoundPolicy;
use crate::lazy_value::LazyValue;
use crate::matching::{MatchInput, Mismatch};
use crate::model::{Binding, FailurePolicy, PatchType};
use crate::mutation::ObjectState;
use crate::outcome::{Denial, Fault, FaultKind, Outcome, SkippedPolicy, Verdict};
use crate::params;
use crate::pruning;
use crate::request::Request;
use crate::request_context::RequestContext;
use crate::working_copy::WorkingCopy;
use tautline_cel::Limits;

/// The limits of an evaluation and the detail of its outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The limits for all conditions of an invocation together, and for each mutation. A policy may
    /// spend three times the cost units on a request. The deadline applies to the whole request.
    pub limits: Limits,
    /// True to report the values of variables, the diff of each mutation, and skipped policies.
    pub full_detail: bool,
}

pub(crate) struct Evaluation<'a> {
    context: RequestContext<'a>,
    settings: &'a Settings,
    state: ObjectState,
    object: LazyValue,
    working_copy: WorkingCopy,
    changed: bool,
    /// The invocations that may run again, as policy, binding and parameter.
    reinvocable: HashSet<Key>,
    /// The cost units that each policy has spent in all its invocations.
    spent_units: HashMap<Arc<str>, u64>,
    outcome: Outcome,
}

type Key = (Arc<str>, String, Option<String>);

struct Invocation<'p> {
    bound: &'p BoundPolicy,
    binding: &'p Binding,
    param: Option<LazyValue>,
}

impl Invocation<'_> {
    fn key(&self) -> Key {
        let param = self.param.as_ref().map(|p| params::name(&p.json));
        let policy = self.bound.policy.name.clone();
        (policy, self.binding.name.clone(), param)
    }
}

struct Abort(Denial);

impl<'a> Evaluation<'a> {
    pub fn new(request: &'a Request, cluster: &'a dyn ClusterView, settings: &'a Settings) -> Self {
        Self {
            context: RequestContext::new(request, cluster),
            settings,
            state: ObjectState::default(),
            object: LazyValue::new(request.object.clone()),
            working_copy: WorkingCopy::default(),
            changed: false,
            reinvocable: HashSet::new(),
            spent_units: HashMap::new(),
            outcome: Outcome::default(),
        }
    }

    pub fn run(mut self, policies: &[BoundPolicy]) -> Outcome {
        let passed = self.pass(policies, 1).and_then(|()| {
            if self.changed && self.denial().is_none() {
                self.admit_again()?;
                return self.pass(policies, 2);
            }
            Ok(())
        });
        let denial = match passed {
            Err(Abort(denial)) => Some(denial),
            Ok(()) => self.denial(),
        };
        let before = &self.context.request.object;
        self.outcome.verdict = match denial {
            Some(denial) => Verdict::Refused(denial),
            None if self.object.json == *before => Verdict::Unchanged,
            None => Verdict::Changed {
                patch: json_patch::diff(before, &self.object.json),
                object: self.object.json,
            },
        };
        self.outcome
    }

    /// Runs the API server's own plugins on an object that a policy changed.
    fn admit_again(&mut self) -> Result<(), Abort> {
        let context = &self.context;
        let admitted = context.cluster.admit(context.request, &self.object.json);
        match admitted {
            Ok(None) => {}
            Ok(Some(object)) => {
                self.object.update(&object);
                // The working copy differs from the object now.
                self.working_copy.get_mut();
                self.state.matches_schema = false;
                self.state.strictly_valid = false;
            }
            Err(refusal) => return Err(Abort(denial(403, "Forbidden", vec![refusal.0]))),
        }
        Ok(())
    }

    /// Runs one pass over all policies. All invocations are collected before the first one runs.
    fn pass(&mut self, policies: &[BoundPolicy], pass: u8) -> Result<(), Abort> {
        let context = &self.context;
        let subject = MatchInput::new(context.request, &self.object.json, context.cluster);
        let mut due = Vec::new();
        for bound in policies {
            self.collect_invocations(bound, &subject, &mut due);
        }
        if due.is_empty() {
            return Ok(());
        }
        if self.context.namespace_missing() {
            let message = format!("namespaces {:?} not found", self.context.request.namespace);
            return Err(Abort(denial(404, "NotFound", vec![message])));
        }
        if pass == 1 {
            let kind = &self.context.request.kind;
            self.state.schema = self.context.cluster.schema(kind);
            let known = || self.state.schema.clone().filter(|_| kind.is_built_in());
            self.state.built_in = pruning::built_in_schema(kind).or_else(known);
        }
        for due in due {
            self.invoke(&due, pass);
        }
        Ok(())
    }

    fn collect_invocations<'p>(
        &mut self,
        bound: &'p BoundPolicy,
        subject: &MatchInput<'_>,
        due: &mut Vec<Invocation<'p>>,
    ) {
        let policy = &bound.policy.policy;
        match subject.matches(&policy.constraints) {
            Ok(None) => {}
            Ok(Some(why)) => return self.skip(bound, None, why),
            Err(error) => {
                let message = format!("failed to configure policy: {error}");
                return self.fault(bound, None, FaultKind::Namespace, message);
            }
        }
        let cluster = self.context.cluster;
        let kind = policy.param_kind.as_ref();
        if let Some(kind) = kind.filter(|k| cluster.resource_scope(k).is_none()) {
            let message = format!(
                "failed to configure policy: failed to find resource referenced by paramKind: '{}, Kind={}'",
                kind.api_version, kind.kind
            );
            return self.fault(bound, None, FaultKind::Params, message);
        }
        for binding in &bound.bindings {
            let matched = binding.resources.as_ref().map(|r| subject.matches(r));
            match matched.unwrap_or(Ok(None)) {
                Ok(None) => {}
                Ok(Some(why)) => {
                    self.skip(bound, Some(binding), why);
                    continue;
                }
                Err(error) => {
                    let message = format!("failed to configure binding: {error}");
                    self.fault(bound, Some(binding), FaultKind::Namespace, message);
                    continue;
                }
            }
            let namespace = &self.context.request.namespace;
            match params::collect(kind, binding.params.as_ref(), namespace, cluster) {
                Ok(params) if params.is_empty() => {
                    self.skip(bound, Some(binding), Mismatch::NoParams);
                }
                Ok(params) => due.extend(params.into_iter().map(|param| Invocation {
                    bound,
                    binding,
                    param: param.map(LazyValue::new),
                })),
                Err(error) => {
                    let message = format!("failed to configure binding: {error}");
                    self.fault(bound, Some(binding), FaultKind::Params, message);
                }
            }
        }
    }

    fn skip(&mut self, bound: &BoundPolicy, binding: Option<&Binding>, why: Mismatch) {
        if self.settings.full_detail {
            self.outcome.skipped.push(SkippedPolicy {
                policy: bound.policy.name.clone(),
                binding: binding.map(|b| b.name.as_str().into()),
                why,
            });
        }
    }

    fn fault(
        &mut self,
        bound: &BoundPolicy,
        binding: Option<&Binding>,
        kind: FaultKind,
        message: String,
    ) {
        self.outcome.faults.push(Fault {
            policy: bound.policy.name.clone(),
            binding: binding.map(|b| b.name.as_str().into()),
            kind,
            message,
            ignored: bound.policy.policy.failure == FailurePolicy::Ignore,
        });
    }

    fn denial(&self) -> Option<Denial> {
        let faults: Vec<&Fault> = self.outcome.faults.iter().filter(|f| !f.ignored).collect();
        // A misconfiguration has the reason Forbidden, a failed expression the reason Invalid.
        let reason = match faults.first()?.kind {
            FaultKind::Namespace | FaultKind::Params => "Forbidden",
            _ => "Invalid",
        };
        let causes = faults.iter().map(ToString::to_string).collect();
        Some(denial(403, reason, causes))
    }

    fn deadline_passed(&self) -> bool {
        let deadline = self.settings.limits.deadline;
        deadline.is_some_and(|d| Instant::now() >= d)
    }

    /// Sets defaults after a mutation. `made` is true if the mutation changed the working copy.
    /// Returns whether the object changes.
    fn set_defaults(&mut self, made: bool, patch: PatchType) -> bool {
        let merged = patch == PatchType::ApplyConfiguration;
        if !made && (self.state.defaulted || !merged) {
            self.state.matches_schema |= merged;
            return false;
        }
        let before = &*self.object.json;
        let draft = if made {
            self.working_copy.get_mut()
        } else {
            self.working_copy.copy_of(before)
        };
        let kind = &self.context.request.kind;
        let own = self.state.built_in.as_ref();
        // A removed null may have been the key of a list element.
        let whole = own.is_none_or(|own| pruning::prune(own, draft, before));
        self.context.cluster.set_defaults(kind, draft);
        self.state.defaulted = true;
        self.state.strictly_valid |= !merged;
        if draft == before {
            self.state.matches_schema |= merged;
            return false;
        }
        self.state.matches_schema = merged && whole;
        self.state.strictly_valid = !merged;
        true
    }
}

pub(crate) fn denial(code: u16, reason: &'static str, causes: Vec<String>) -> Denial {
    Denial {
        code,
        reason,
        message: causes.first().cloned().unwrap_or_default(),
        causes,
    }
}
