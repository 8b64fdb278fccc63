//! A request on its way through all policies, as the API server's dispatcher
//! leads it (k8s.io/apiserver 0.36.3, pkg/admission/plugin/policy: generic and
//! mutating).

mod invoke;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use crate::cluster::ClusterView;
use crate::matching::MatchInput;
use crate::model::{Binding, FailurePolicy, PatchType};
use crate::mutation::ObjectState;
use crate::outcome::{Denial, Fault, FaultKind, Outcome, SkippedPolicy, Verdict};
use crate::params;
use crate::policies::BoundPolicy;
use crate::pruning;
use crate::request::Request;
use crate::resolver::{LazyValue, RequestContext};
use crate::working_copy::WorkingCopy;
use tautline_cel::Limits;

/// How far a request may go, and what is told of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Bounds for the conditions of an invocation together, and for each of its
    /// mutations; three times as many units for all that a policy does to one
    /// request. The deadline is one for the whole request.
    pub limits: Limits,
    /// Whether variables' values, each mutation's diff and what was passed over
    /// are told.
    pub full_detail: bool,
}

/// One request under way.
pub(crate) struct Evaluation<'a> {
    context: RequestContext<'a>,
    settings: &'a Settings,
    state: ObjectState,
    object: LazyValue,
    working_copy: WorkingCopy,
    changed: bool,
    /// Which invocations may run again: policy, binding, parameter.
    reinvocable: HashSet<Key>,
    /// Units that each policy has spent so far, over all its invocations.
    spent_units: HashMap<Arc<str>, u64>,
    outcome: Outcome,
}

type Key = (Arc<str>, String, Option<String>);

/// A policy, a binding of it and a parameter that are for the request.
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

/// The request ends here.
struct Abort(Denial);

impl<'a> Evaluation<'a> {
    pub fn new(request: &'a Request, world: &'a dyn ClusterView, settings: &'a Settings) -> Self {
        Self {
            context: RequestContext::new(request, world),
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
            if self.changed && self.refusal().is_none() {
                return self.pass(policies, 2);
            }
            Ok(())
        });
        let refusal = match passed {
            Err(Abort(refusal)) => Some(refusal),
            Ok(()) => self.refusal(),
        };
        let before = &self.context.request.object;
        self.outcome.verdict = match refusal {
            Some(refusal) => Verdict::Refused(refusal),
            None if self.object.json == *before => Verdict::Unchanged,
            None => Verdict::Changed {
                patch: json_patch::diff(before, &self.object.json),
                object: self.object.json,
            },
        };
        self.outcome
    }

    /// One pass over all policies. What is due is settled before any of it runs.
    fn pass(&mut self, policies: &[BoundPolicy], pass: u8) -> Result<(), Abort> {
        let subject = MatchInput::new(
            self.context.request,
            &self.object.json,
            self.context.cluster,
        );
        let mut due = Vec::new();
        for bound in policies {
            self.collect_invocations(bound, &subject, &mut due);
        }
        if due.is_empty() {
            return Ok(());
        }
        if self.context.namespace_missing() {
            let message = format!("namespaces {:?} not found", self.context.request.namespace);
            return Err(Abort(refusal(404, "NotFound", vec![message])));
        }
        if pass == 1 {
            let kind = &self.context.request.kind;
            self.state.schema = self.context.cluster.schema(kind);
            self.state.built_in = pruning::built_in_schema(kind);
        }
        for due in due {
            self.invoke(&due, pass)?;
        }
        Ok(())
    }

    /// Adds the invocations of one policy that are for the request.
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
        let world = self.context.cluster;
        if let Some(kind) = policy
            .param_kind
            .as_ref()
            .filter(|k| world.resource_scope(k).is_none())
        {
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
            let (kind, reference) = (policy.param_kind.as_ref(), binding.params.as_ref());
            let namespace = &self.context.request.namespace;
            match params::collect(kind, reference, namespace, world) {
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

    fn skip(
        &mut self,
        bound: &BoundPolicy,
        binding: Option<&Binding>,
        why: crate::matching::Mismatch,
    ) {
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

    /// The refusal that the faults so far amount to.
    fn refusal(&self) -> Option<Denial> {
        let faults: Vec<&Fault> = self.outcome.faults.iter().filter(|f| !f.ignored).collect();
        // A misconfiguration is forbidden; what fails to run is invalid.
        let reason = match faults.first()?.kind {
            FaultKind::Namespace | FaultKind::Params => "Forbidden",
            _ => "Invalid",
        };
        let causes = faults.iter().map(ToString::to_string).collect();
        Some(refusal(403, reason, causes))
    }

    /// Whether the time for the whole request is over.
    fn deadline_passed(&self) -> bool {
        let deadline = self.settings.limits.deadline;
        deadline.is_some_and(|d| Instant::now() >= d)
    }

    /// Sets new defaults in the draft that a mutation of this type made (or did not:
    /// it is the object as it was): whether that is another object.
    fn set_defaults(&mut self, made: bool, patch: PatchType) -> bool {
        let merged = patch == PatchType::ApplyConfiguration;
        if !made && (self.state.defaulted || !merged) {
            self.state.matches_schema |= merged;
            return false;
        }
        let before = &*self.object.json;
        let draft = match made {
            true => self.working_copy.get_mut(),
            false => self.working_copy.copy_of(before),
        };
        let kind = &self.context.request.kind;
        let own = self.state.built_in.as_ref();
        // A null that goes may have been an element's key.
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

fn refusal(code: u16, reason: &'static str, causes: Vec<String>) -> Denial {
    Denial {
        code,
        reason,
        message: causes.first().cloned().unwrap_or_default(),
        causes,
    }
}
