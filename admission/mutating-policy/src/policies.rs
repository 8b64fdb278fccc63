//! Loads mutation policies and their bindings from manifests, joins them, and evaluates them for
//! requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::cluster::ClusterView;
use crate::compiled::{BoundPolicy, CompiledPolicy};
use crate::evaluation::{Evaluation, Settings};
use crate::manifest::Problem;
use crate::model::{self, Binding, Document};
use crate::outcome::Outcome;
use crate::request::Request;

/// Policies with their bindings, in the order of the policies' names, in which they run.
#[derive(Clone, Default)]
pub struct Policies(Arc<[BoundPolicy]>);

/// The problems of the manifests that were loaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// The errors. Policies and bindings with errors have no effect.
    pub faults: Vec<Problem>,
    /// The likely mistakes, such as a policy without a binding.
    pub warnings: Vec<Problem>,
}

impl Policies {
    /// Joins policies and bindings. Bindings without a policy have no effect.
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
        let bound = bound.into_values().filter(|b| !b.bindings.is_empty());
        Self(bound.collect())
    }

    /// Parses and compiles manifests. Invalid ones are reported, and objects of other kinds are
    /// skipped.
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
                    message: "is a duplicate; the last object of this name counts".to_owned(),
                }),
                Err(faults) => report.faults.extend(faults),
            }
        }
        for binding in bindings.values() {
            let (field, message) = match policies.get(&binding.policy) {
                None => {
                    let message = format!("policy {:?} is not active", binding.policy);
                    ("spec.policyName", message)
                }
                Some(policy) if policy.policy.param_kind.is_some() && binding.params.is_none() => {
                    let message = format!(
                        "is missing, so params is null, although policy {:?} has a paramKind",
                        binding.policy
                    );
                    ("spec.paramRef", message)
                }
                Some(_) => continue,
            };
            report.warnings.push(Problem {
                object: format!("binding {}", binding.name),
                field: field.to_owned(),
                message,
            });
        }
        for name in policies.keys() {
            if !bindings.values().any(|b| b.policy == *name) {
                report.warnings.push(Problem {
                    object: format!("policy {name}"),
                    field: "metadata.name".to_owned(),
                    message: "has no binding, so it has no effect".to_owned(),
                });
            }
        }
        let policies = Self::new(policies.into_values(), bindings.into_values());
        (policies, report)
    }

    /// Evaluates the policies for a request. Blocks only in `cluster`, and never panics. An error
    /// in one policy does not affect other policies.
    pub fn mutate(
        &self,
        request: &Request,
        cluster: &dyn ClusterView,
        settings: &Settings,
    ) -> Outcome {
        Evaluation::new(request, cluster, settings).run(&self.0)
    }

    /// Returns the number of policies that have a binding.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no policy has a binding.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The policy or binding that a valid manifest describes.
#[derive(Clone)]
pub enum LoadedObject {
    /// A policy with valid expressions.
    Policy(Arc<CompiledPolicy>),
    /// A binding; its policy need not exist.
    Binding(Arc<Binding>),
}

/// Parses one manifest and compiles its expressions. Returns the object with warnings, or all
/// errors.
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
