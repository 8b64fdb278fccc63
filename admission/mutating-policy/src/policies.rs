//! The policies and bindings in force.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::cluster::ClusterView;
use crate::compiled::CompiledPolicy;
use crate::evaluation::{Evaluation, Settings};
use crate::manifest::Problem;
use crate::model::{self, Binding, Document};
use crate::outcome::Outcome;
use crate::request::Request;

/// Policies, each with its bindings, in the order in which they run: by name.
/// A change is a new value of this type; compiled policies are shared.
#[derive(Clone, Default)]
pub struct Policies(Arc<[BoundPolicy]>);

/// A policy and its bindings, by name.
pub(crate) struct BoundPolicy {
    pub policy: Arc<CompiledPolicy>,
    pub bindings: Vec<Arc<Binding>>,
}

/// What loading found beside policies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// What is wrong: the objects named here are not in force.
    pub faults: Vec<Problem>,
    /// What is odd.
    pub warnings: Vec<Problem>,
}

impl Policies {
    /// Puts policies and bindings together. Bindings without a policy wait.
    pub fn new(
        policies: impl IntoIterator<Item = Arc<CompiledPolicy>>,
        bindings: impl IntoIterator<Item = Arc<Binding>>,
    ) -> Self {
        let mut bound: BTreeMap<String, BoundPolicy> = BTreeMap::new();
        for policy in policies {
            let bindings = Vec::new();
            bound.insert(policy.policy.name.clone(), BoundPolicy { policy, bindings });
        }
        for binding in bindings {
            if let Some(bound) = bound.get_mut(&binding.policy) {
                bound.bindings.push(binding);
            }
        }
        for bound in bound.values_mut() {
            bound.bindings.sort_by(|a, b| a.name.cmp(&b.name));
        }
        // Without a binding a policy does nothing.
        let bound = bound.into_values().filter(|b| !b.bindings.is_empty());
        Self(bound.collect())
    }

    /// Reads and compiles manifests. One that is at fault is left out and
    /// reported; the others are in force. Objects of other kinds are passed over.
    pub fn load<'a>(manifests: impl IntoIterator<Item = &'a Value>) -> (Self, LoadReport) {
        let mut report = LoadReport::default();
        let mut policies: BTreeMap<String, Arc<CompiledPolicy>> = BTreeMap::new();
        let mut bindings: BTreeMap<String, Arc<Binding>> = BTreeMap::new();
        for manifest in manifests
            .into_iter()
            .filter(|m| model::is_policy_or_binding(m))
        {
            let loaded = check(manifest).map(|(loaded, warnings)| {
                report.warnings.extend(warnings);
                match loaded {
                    LoadedObject::Policy(policy) => {
                        let name = policy.policy.name.clone();
                        policies.insert(name, policy).map(|p| p.policy.name.clone())
                    }
                    LoadedObject::Binding(binding) => {
                        let old = bindings.insert(binding.name.clone(), binding);
                        old.map(|b| b.name.clone())
                    }
                }
            });
            match loaded {
                Ok(None) => {}
                Ok(Some(name)) => report.warnings.push(Problem {
                    object: name,
                    field: "metadata.name".to_owned(),
                    message: "is there twice; the last one counts".to_owned(),
                }),
                Err(faults) => report.faults.extend(faults),
            }
        }
        for binding in bindings.values() {
            if !policies.contains_key(&binding.policy) {
                report.warnings.push(Problem {
                    object: format!("binding {}", binding.name),
                    field: "spec.policyName".to_owned(),
                    message: format!("policy {:?} is not in force", binding.policy),
                });
            }
        }
        for name in policies.keys() {
            if !bindings.values().any(|b| b.policy == *name) {
                report.warnings.push(Problem {
                    object: format!("policy {name}"),
                    field: "metadata.name".to_owned(),
                    message: "has no binding, so it does nothing".to_owned(),
                });
            }
        }
        let policies = Self::new(policies.into_values(), bindings.into_values());
        (policies, report)
    }

    /// Works out what becomes of a request. Never blocks but for what `world`
    /// does, and never panics; a policy's errors stay its own.
    pub fn mutate(
        &self,
        request: &Request,
        world: &dyn ClusterView,
        settings: &Settings,
    ) -> Outcome {
        Evaluation::new(request, world, settings).run(&self.0)
    }

    /// How many policies are in force, those without a binding not counted.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no policy is in force.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A policy or a binding that is fit for use.
#[derive(Clone)]
pub enum LoadedObject {
    /// A policy.
    Policy(Arc<CompiledPolicy>),
    /// A binding.
    Binding(Arc<Binding>),
}

/// Reads one manifest and compiles its expressions: what a server asks before it
/// takes a policy. Comes with warnings.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check(manifest: &Value) -> Result<(LoadedObject, Vec<Problem>), Vec<Problem>> {
    let read = model::parse(manifest)?;
    let mut warnings = read.warnings;
    let loaded = match read.document {
        Document::Policy(policy) => {
            let policy = CompiledPolicy::new(policy)?;
            warnings.extend(policy.unknown_fields());
            LoadedObject::Policy(Arc::new(policy))
        }
        Document::Binding(binding) => LoadedObject::Binding(Arc::new(binding)),
    };
    Ok((loaded, warnings))
}
