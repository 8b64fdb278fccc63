//! Simulates a cluster by a fixed set of objects, for the evaluation of mutation policies without
//! an API server.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::built_in;
use crate::cluster::{ClusterView, ParamQuery, ParamSelector, Refusal, ResourceScope};
use crate::defaults;
use crate::evaluation::{Settings, denial};
use crate::matching::labels;
use crate::model::ParamKind;
use crate::objects::Objects;
use crate::outcome::{Outcome, Verdict};
use crate::policies::Policies;
use crate::request::{Kind, Request};

/// A cluster that consists of given objects, such as Namespaces and parameters, for `tautline
/// check`, tests and benchmarks.
#[derive(Clone, Debug, Default)]
pub struct StaticCluster {
    objects: Objects,
    admits: bool,
}

/// A request to create an object that no API server has read, with its outcome.
pub struct Creation {
    /// The request that policies see.
    pub request: Request,
    /// The notes on the changes that are left out because an object is not given.
    pub notes: Vec<String>,
    /// The outcome.
    pub outcome: Outcome,
}

impl FromIterator<Value> for StaticCluster {
    fn from_iter<I: IntoIterator<Item = Value>>(objects: I) -> Self {
        Self {
            objects: Objects(objects.into_iter().map(Arc::new).collect()),
            admits: false,
        }
    }
}

impl ClusterView for StaticCluster {
    /// Returns the Namespace of this name. An unknown Namespace has only the label that every
    /// Namespace has.
    fn namespace(&self, name: &str) -> Option<Arc<Value>> {
        let is = |o: &&Arc<Value>| o["kind"] == "Namespace" && o["metadata"]["name"] == name;
        let found = self.objects.0.iter().find(is).cloned();
        Some(found.unwrap_or_else(|| {
            let labels = json!({"kubernetes.io/metadata.name": name});
            json!({"metadata": {"name": name, "labels": labels}}).into()
        }))
    }

    fn resource_scope(&self, kind: &ParamKind) -> Option<ResourceScope> {
        let cluster_wide = self
            .objects
            .of_kind(&kind.api_version, &kind.kind)
            .any(|o| o["metadata"].get("namespace").is_none());
        Some(if cluster_wide {
            ResourceScope::Cluster
        } else {
            ResourceScope::Namespaced
        })
    }

    fn params(&self, kind: &ParamKind, query: ParamQuery<'_>) -> Vec<Arc<Value>> {
        let found = self
            .objects
            .of_kind(&kind.api_version, &kind.kind)
            .filter(|object| {
                let meta = &object["metadata"];
                meta["namespace"].as_str() == query.namespace
                    && match query.selector {
                        ParamSelector::Name(name) => meta["name"] == name,
                        ParamSelector::Labels(selector) => selector.matches(&labels(object)),
                    }
            });
        found.cloned().collect()
    }

    fn admit(&self, request: &Request, object: &Value) -> Result<Option<Value>, Refusal> {
        if !self.admits {
            return Ok(None);
        }
        let mut admitted = object.clone();
        built_in::admit(request, &mut admitted, &self.objects)?;
        Ok((admitted != *object).then_some(admitted))
    }
}

impl StaticCluster {
    /// Enables the API server's own admission plugins, which run again between the passes of a
    /// request, as in the API server.
    #[must_use]
    pub fn with_built_in_admission(self) -> Self {
        Self {
            admits: true,
            ..self
        }
    }

    /// Creates an object as the API server does: sets its defaults, admits it by the API server's
    /// own plugins, and evaluates the policies. Returns `None` if the object has no apiVersion or
    /// kind.
    #[must_use]
    pub fn create(
        &self,
        mut object: Value,
        policies: &Policies,
        settings: &Settings,
    ) -> Option<Creation> {
        defaults::complete(&Kind::of_object(&object)?, &mut object);
        let mut request = Request::create(object.clone())?;
        let admitted = built_in::admit(&request, &mut object, &self.objects);
        request.object = object.into();
        let (notes, outcome) = match admitted {
            Ok(notes) => (notes, self.evaluate(&request, policies, settings)),
            Err(refusal) => (Vec::new(), refused(refusal, Outcome::default())),
        };
        Some(Creation {
            request,
            notes,
            outcome,
        })
    }

    /// Evaluates the policies for a request, and refuses a new pod that violates a LimitRange then.
    #[must_use]
    pub fn evaluate(&self, request: &Request, policies: &Policies, settings: &Settings) -> Outcome {
        let outcome = policies.mutate(request, self, settings);
        let object = match &outcome.verdict {
            Verdict::Unchanged => &request.object,
            Verdict::Changed { object, .. } => object,
            Verdict::Refused(_) => return outcome,
        };
        match built_in::check(request, object, &self.objects) {
            Ok(()) => outcome,
            Err(refusal) => refused(refusal, outcome),
        }
    }

    /// Completes a new pod, whose defaults are set, with what decides on its node, as the API
    /// server's own plugins do: requests of LimitRanges, the priority, and the overhead and nodes of
    /// the RuntimeClass. What is not given has no effect, and an own priority stays.
    ///
    /// # Errors
    /// Fails with the API server's refusal, also of a pod that violates a LimitRange.
    pub fn complete_pod(&self, namespace: &str, pod: &mut Value) -> Result<(), Refusal> {
        built_in::complete_pod(pod, namespace, &self.objects)
    }
}

fn refused(refusal: Refusal, outcome: Outcome) -> Outcome {
    Outcome {
        verdict: Verdict::Refused(denial(403, "Forbidden", vec![refusal.0])),
        ..outcome
    }
}
