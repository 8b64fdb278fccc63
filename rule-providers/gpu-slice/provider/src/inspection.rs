//! One snapshot of a cluster as the provider sees it, for tools that report on GPUs. Its answers
//! come from the code that answers the provider's callers.

mod request_summary;

use std::{collections::HashMap, sync::Arc, time::Instant};

use tautline_core::{
    Snapshot,
    constraints::{self, PodIdentity},
    model::{self, Offer, Pod},
    quantity,
};
use tautline_gpu_placement::{Inventory, Names, NodeCapacity, PlannedClasses, RequestClass, Shape};
use tautline_sdk::{
    CostRequest, Evaluation, EvaluationRequest, ProviderError, Reference, Rule, Workload,
};

pub use request_summary::RequestSummary;

use crate::{
    RULE, answers, cluster_inventory::ClusterInventory, config::Config, fit::Fit,
    gpu_request::GpuRequest, state::State,
};

/// The cards of all nodes, their holders, and the distribution of requests.
#[derive(Debug)]
pub struct Inspection {
    /// Without reservations: only the provider knows those.
    state: State,
    snapshot: Arc<Snapshot>,
    /// Counted shapes of waiting pods whose request only a rule states, by pod.
    by_rule: HashMap<String, Shape>,
}

/// The devices of a node.
#[derive(Clone, Debug)]
pub struct NodeGpus<'a> {
    /// The node's name.
    pub name: &'a Arc<str>,
    /// Its devices and their holders.
    pub inventory: &'a Inventory,
    /// The free capacity of each pool, in the inventory's order.
    pub capacities: Vec<&'a NodeCapacity>,
}

/// A pod that was counted in the distribution of requests.
#[derive(Clone, Debug)]
pub struct CountedRequest {
    /// `namespace/name`.
    pub pod: String,
    /// The requested shape.
    pub shape: Shape,
    /// A rule of an offer states it; else the pod's own requests or annotation do.
    pub by_rule: bool,
}

/// A cost request about a pod.
#[derive(Clone, Debug)]
pub struct Question {
    /// The offer of the rule, and the policy that has it; `None`: no rule governs the pod, and
    /// its own requests count.
    pub by: Option<(Arc<Offer>, Arc<str>)>,
    /// The request, for all nodes.
    pub ask: CostRequest,
}

/// All cost requests about a pod.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    /// One for each offer that governs it with a rule `gpu-slice`; else one about its
    /// own requests.
    pub rules: Vec<Question>,
    /// Offer and policy, for each policy that an offer names and that does not exist.
    pub missing_policies: Vec<(Arc<str>, Arc<str>)>,
    /// Names of the other rules of its offers, which other providers answer.
    pub other_rules: Vec<Arc<str>>,
}

impl Inspection {
    /// Reads `snapshot`. The distribution is learned from its pods: from what they request or
    /// hold, and for waiting pods also from what rules state.
    pub fn new(snapshot: Arc<Snapshot>, config: Config) -> Self {
        let mut inventory = ClusterInventory::new(config);
        inventory.sync(Arc::clone(&snapshot), &[], |_| Vec::new());
        let mut inspection = Self {
            state: State::new(inventory, ""),
            snapshot: Arc::clone(&snapshot),
            by_rule: HashMap::new(),
        };
        let waits = |p: &&Arc<Pod>| p.node.is_none() && !p.finished;
        let mut waiting: Vec<&Arc<Pod>> = snapshot.pods().filter(waits).collect();
        waiting.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        for pod in waiting {
            if inspection.state.inventory.pod_shape(pod).is_some() {
                continue;
            }
            let questions = inspection.questions_for(pod, &[]);
            for Question { ask, .. } in questions.rules.iter().filter(|q| q.by.is_some()) {
                // A rule that cannot be read is reported when the pod is inspected.
                let request = inspection.request(ask);
                let Some(request) = request.ok().filter(|r| r.by_rule) else {
                    continue;
                };
                // Pods of manifests have no UID.
                let name = key(pod);
                let uid = if pod.uid.is_empty() { &name } else { &*pod.uid };
                if let Some(shape) = inspection.state.inventory.count_request(uid, &request) {
                    inspection.by_rule.insert(name, shape);
                }
            }
        }
        inspection.state.inventory.plan_now();
        inspection
    }

    /// The inspected cluster.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Names of resources, labels and annotations.
    pub fn names(&self) -> &Names {
        &self.state.inventory.names
    }

    /// Every node, by name; also those without devices.
    pub fn nodes(&self) -> Vec<NodeGpus<'_>> {
        let mut all: Vec<_> = self.state.inventory.nodes().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        let capacity = |slot: &usize| self.state.inventory.costs.capacity(*slot);
        let gpus = all.into_iter().map(|(name, entry)| NodeGpus {
            name,
            inventory: &entry.inventory,
            capacities: entry.slots.iter().filter_map(capacity).collect(),
        });
        gpus.collect()
    }

    /// The distribution of requests, the most popular first. The rarest, together at
    /// most a twentieth of all, are left out; see [`Inspection::class_count`].
    pub fn classes(&self) -> &[(RequestClass, f64)] {
        self.state.inventory.costs.classes()
    }

    /// The number of classes, rare ones included.
    pub fn class_count(&self) -> usize {
        self.state.inventory.class_count()
    }

    /// The same distribution, with the kinds of cards that each class may run on.
    pub fn types(&self) -> PlannedClasses {
        PlannedClasses::new(self.classes(), self.state.inventory.costs.kinds())
    }

    /// The pods that the distribution was learned from, by name.
    pub fn requests(&self) -> Vec<CountedRequest> {
        let mut all: Vec<CountedRequest> = self
            .snapshot
            .pods()
            .filter_map(|pod| {
                let (pod_key, own) = (key(pod), self.state.inventory.pod_shape(pod));
                let by_rule = own.is_none();
                let shape = own.or_else(|| self.by_rule.get(&pod_key).cloned())?;
                Some(CountedRequest {
                    pod: pod_key,
                    shape,
                    by_rule,
                })
            })
            .collect();
        all.sort_unstable_by(|a, b| a.pod.cmp(&b.pod));
        all
    }

    /// The cost requests about a pod, for all nodes.
    pub fn questions(&self, pod: &Pod) -> Questions {
        let mut nodes: Vec<String> = self.snapshot.nodes().map(|n| n.name.to_string()).collect();
        nodes.sort_unstable();
        self.questions_for(pod, &nodes)
    }

    fn questions_for(&self, pod: &Pod, nodes: &[String]) -> Questions {
        let subject = PodIdentity {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
            labels: pod.labels.clone(),
        };
        let question = |by, rule| Question {
            by,
            ask: CostRequest {
                source: Reference::pod(&pod.namespace, &pod.name),
                rule,
                eligible_nodes: nodes.to_vec(),
                workload: Some(workload(pod)),
                ..CostRequest::default()
            },
        };
        let mut all = Questions::default();
        for ask in constraints::pod_constraints(&self.snapshot, &subject) {
            let offer = &ask.offer;
            let missing = ask.missing_policies.iter();
            all.missing_policies
                .extend(missing.map(|p| (Arc::clone(&offer.name), Arc::clone(p))));
            for rule in ask.rules.iter().filter(|r| *r.name != *RULE) {
                if !all.other_rules.contains(&rule.name) {
                    all.other_rules.push(Arc::clone(&rule.name));
                }
            }
            if let Some(rule) = ask.rules.iter().find(|r| *r.name == *RULE) {
                let policy = self.policy_of(offer, rule).unwrap_or_default();
                all.rules
                    .push(question(Some((Arc::clone(offer), policy)), sdk_rule(rule)));
            }
        }
        if all.rules.is_empty() {
            let rule = model::Rule {
                name: RULE.into(),
                ..model::Rule::default()
            };
            all.rules.push(question(None, sdk_rule(&rule)));
        }
        all
    }

    /// The first policy of an offer that has the rule.
    fn policy_of(&self, offer: &Offer, rule: &model::Rule) -> Option<Arc<str>> {
        let has = |name: &&Arc<str>| {
            let policy = self.snapshot.policy(&offer.namespace, name);
            policy.is_some_and(|p| p.rules.iter().any(|r| r.name == rule.name))
        };
        offer.policies.iter().find(has).cloned()
    }

    fn request(&self, ask: &CostRequest) -> Result<GpuRequest, ProviderError> {
        let names = &self.state.inventory.names;
        GpuRequest::new(names, &ask.rule, ask.workload.as_ref())
    }

    /// The GPU request of the pod.
    ///
    /// # Errors
    /// A rule that cannot be read.
    pub fn request_summary(&self, ask: &CostRequest) -> Result<RequestSummary, ProviderError> {
        Ok(RequestSummary::new(&self.request(ask)?))
    }

    /// The fit on each node of the request, in its order.
    ///
    /// # Errors
    /// A rule that cannot be read.
    pub fn fits(&mut self, ask: &CostRequest) -> Result<Vec<(String, Fit)>, ProviderError> {
        let now = Instant::now();
        answers::fits(&mut self.state, &self.snapshot, ask.clone(), now)
    }

    /// Evaluates whether the pods of the request still have their GPUs.
    ///
    /// # Errors
    /// A rule that cannot be read.
    pub fn evaluate(&self, ask: &EvaluationRequest) -> Result<Evaluation, ProviderError> {
        answers::evaluation(&self.state, &self.snapshot, ask)
    }
}

fn key(pod: &Pod) -> String {
    model::key(&pod.namespace, &pod.name)
}

fn sdk_rule(rule: &model::Rule) -> Rule {
    Rule {
        name: rule.name.to_string(),
        request: rule.request.clone(),
        limit: rule.limit.clone(),
    }
}

/// The pod as the extender describes it to providers.
fn workload(pod: &Pod) -> Workload {
    let annotations = pod.placement.as_ref().map(|p| &p.annotations);
    let texts = |labels: &tautline_core::selector::Labels| {
        let pairs = labels.iter();
        pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    Workload {
        uid: pod.uid.to_string(),
        labels: texts(&pod.labels),
        annotations: texts(annotations.unwrap_or(&pod.annotations)),
        requests: pod
            .requests
            .iter()
            .map(|(name, milli)| (name.to_owned(), quantity::format_milli(milli)))
            .collect(),
        resource_claims: pod.claims().map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests;
