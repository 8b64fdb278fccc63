//! A request on its way through all policies, as the API server's dispatcher
//! leads it (k8s.io/apiserver 0.36.3, pkg/admission/plugin/policy: generic and
//! mutating).

mod invoke;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use crate::draft::Draft;
use crate::matching::Subject;
use crate::model::{Binding, FailurePolicy, PatchType};
use crate::names::{Around, View};
use crate::outcome::{Fault, FaultKind, Outcome, PassedOver, Refusal, Verdict};
use crate::params;
use crate::policies::Bound;
use crate::request::Request;
use crate::step::Known;
use crate::typed;
use crate::world::World;
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
pub(crate) struct Session<'a> {
    around: Around<'a>,
    settings: &'a Settings,
    known: Known,
    object: View,
    draft: Draft,
    changed: bool,
    /// Which invocations may run again: policy, binding, parameter.
    again: HashSet<Key>,
    /// Units that each policy has spent so far, over all its invocations.
    spent: HashMap<Arc<str>, u64>,
    outcome: Outcome,
}

type Key = (Arc<str>, String, Option<String>);

/// A policy, a binding of it and a parameter that are for the request.
struct Due<'p> {
    bound: &'p Bound,
    binding: &'p Binding,
    param: Option<View>,
}

impl Due<'_> {
    fn key(&self) -> Key {
        let param = self.param.as_ref().map(|p| params::name(&p.json));
        let policy = self.bound.policy.name.clone();
        (policy, self.binding.name.clone(), param)
    }
}

/// The request ends here.
struct Stop(Refusal);

impl<'a> Session<'a> {
    pub fn new(request: &'a Request, world: &'a dyn World, settings: &'a Settings) -> Self {
        Self {
            around: Around::new(request, world),
            settings,
            known: Known::default(),
            object: View::new(request.object.clone()),
            draft: Draft::default(),
            changed: false,
            again: HashSet::new(),
            spent: HashMap::new(),
            outcome: Outcome::default(),
        }
    }

    pub fn run(mut self, policies: &[Bound]) -> Outcome {
        let passed = self.pass(policies, 1).and_then(|()| {
            if self.changed && self.refusal().is_none() {
                return self.pass(policies, 2);
            }
            Ok(())
        });
        let refusal = match passed {
            Err(Stop(refusal)) => Some(refusal),
            Ok(()) => self.refusal(),
        };
        let before = &self.around.request.object;
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
    fn pass(&mut self, policies: &[Bound], pass: u8) -> Result<(), Stop> {
        let subject = Subject::new(self.around.request, &self.object.json, self.around.world);
        let mut due = Vec::new();
        for bound in policies {
            self.due(bound, &subject, &mut due);
        }
        if due.is_empty() {
            return Ok(());
        }
        if self.around.lacks_namespace() {
            let message = format!("namespaces {:?} not found", self.around.request.namespace);
            return Err(Stop(refusal(404, "NotFound", vec![message])));
        }
        if pass == 1 {
            let kind = &self.around.request.kind;
            self.known.schema = self.around.world.schema(kind);
            self.known.own = typed::own(kind);
        }
        for due in due {
            self.invoke(&due, pass)?;
        }
        Ok(())
    }

    /// Adds the invocations of one policy that are for the request.
    fn due<'p>(&mut self, bound: &'p Bound, subject: &Subject<'_>, due: &mut Vec<Due<'p>>) {
        let policy = &bound.policy.policy;
        match subject.matches(&policy.constraints) {
            Ok(None) => {}
            Ok(Some(why)) => return self.pass_over(bound, None, why),
            Err(error) => {
                let message = format!("failed to configure policy: {error}");
                return self.fault(bound, None, FaultKind::Namespace, message);
            }
        }
        let world = self.around.world;
        if let Some(kind) = policy
            .param_kind
            .as_ref()
            .filter(|k| world.lies(k).is_none())
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
                    self.pass_over(bound, Some(binding), why);
                    continue;
                }
                Err(error) => {
                    let message = format!("failed to configure binding: {error}");
                    self.fault(bound, Some(binding), FaultKind::Namespace, message);
                    continue;
                }
            }
            let (kind, reference) = (policy.param_kind.as_ref(), binding.params.as_ref());
            let namespace = &self.around.request.namespace;
            match params::collect(kind, reference, namespace, world) {
                Ok(params) => due.extend(params.into_iter().map(|param| Due {
                    bound,
                    binding,
                    param: param.map(View::new),
                })),
                Err(error) => {
                    let message = format!("failed to configure binding: {error}");
                    self.fault(bound, Some(binding), FaultKind::Params, message);
                }
            }
        }
    }

    fn pass_over(
        &mut self,
        bound: &Bound,
        binding: Option<&Binding>,
        why: crate::matching::Mismatch,
    ) {
        if self.settings.full_detail {
            self.outcome.passed_over.push(PassedOver {
                policy: bound.policy.name.clone(),
                binding: binding.map(|b| b.name.as_str().into()),
                why,
            });
        }
    }

    fn fault(
        &mut self,
        bound: &Bound,
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
    fn refusal(&self) -> Option<Refusal> {
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
    fn late(&self) -> bool {
        let deadline = self.settings.limits.deadline;
        deadline.is_some_and(|d| Instant::now() >= d)
    }

    /// Sets new defaults in the draft that a mutation of this type made (or did not:
    /// it is the object as it was): whether that is another object.
    fn settle(&mut self, made: bool, patch: PatchType) -> bool {
        let merged = patch == PatchType::ApplyConfiguration;
        if !made && (self.known.settled || !merged) {
            self.known.sound |= merged;
            return false;
        }
        let before = &*self.object.json;
        let draft = match made {
            true => self.draft.made_mut(),
            false => self.draft.of(before),
        };
        let kind = &self.around.request.kind;
        let own = self.known.own.as_ref();
        // A null that goes may have been an element's key.
        let whole = own.is_none_or(|own| typed::prune(own, draft, before));
        self.around.world.set_defaults(kind, draft);
        self.known.settled = true;
        self.known.strict |= !merged;
        if draft == before {
            self.known.sound |= merged;
            return false;
        }
        self.known.sound = merged && whole;
        self.known.strict = !merged;
        true
    }
}

fn refusal(code: u16, reason: &'static str, causes: Vec<String>) -> Refusal {
    Refusal {
        code,
        reason,
        message: causes.first().cloned().unwrap_or_default(),
        causes,
    }
}
