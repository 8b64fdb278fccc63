//! Inspects one snapshot of a cluster for reporting tools, with the provider's own code.

mod request_summary;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

use tautline_core::{
    Snapshot,
    constraints::{self, PodIdentity},
    model::{self, Offer, Pod},
    quantity,
};
use tautline_gpu_placement::{
    CostCache, Inventory, Names, NodeCapacity, PlannedClasses, RequestClass, Shape,
    policy::PolicyName,
};
use tautline_sdk::{
    Container, CostRequest, Evaluation, EvaluationRequest, ProviderError, Reference, Rule, Workload,
};

pub use request_summary::RequestSummary;

use crate::{
    RULE, answers,
    cluster_inventory::{ClusterInventory, Held, NodeEntry},
    config::Config,
    fit::Fit,
    gpu_request::GpuRequest,
    state::State,
};

/// The provider's view of one snapshot.
#[derive(Debug)]
pub struct Inspection {
    state: State,
    policy: PolicyName,
    snapshot: Arc<Snapshot>,
    /// The counted shapes of waiting pods whose request only a rule states, by `namespace/name`.
    by_rule: HashMap<String, Shape>,
}

/// A node's GPUs.
#[derive(Clone, Debug)]
pub struct NodeGpus<'a> {
    /// The node's name.
    pub name: &'a Arc<str>,
    /// The pools of cards with the pods on them, and the GPUs of which only the number is known.
    pub inventory: &'a Inventory,
    /// The free capacity of each pool, in the inventory's order.
    pub capacities: Vec<&'a NodeCapacity>,
}

/// A pod that requests cards.
#[derive(Clone, Debug)]
pub struct CountedRequest {
    /// The pod as `namespace/name`.
    pub pod: String,
    /// The requested CPU, memory and cards.
    pub shape: Shape,
    /// True if a rule of an offer states the shape; otherwise the pod does.
    pub by_rule: bool,
}

/// A request of costs for one pod, as the provider would receive it.
#[derive(Clone, Debug)]
pub struct Question {
    /// The offer, and the policy that has the rule; `None`: no rule governs the pod, and its own
    /// requests count.
    pub by: Option<(Arc<Offer>, Arc<str>)>,
    /// The request, whose eligible nodes are all nodes of the snapshot.
    pub ask: CostRequest,
}

/// The requests of a pod's offers to this provider.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    /// One question for each offer with a rule `gpu-slice`, or else one for the pod's own requests.
    pub rules: Vec<Question>,
    /// The offers that name a policy that does not exist, each with the name of the policy.
    pub missing_policies: Vec<(Arc<str>, Arc<str>)>,
    /// The names of the rules of other providers.
    pub other_rules: Vec<Arc<str>>,
}

impl Inspection {
    /// Learns the distribution of requests from requests and cards of pods, and from rules of
    /// waiting pods.
    pub fn new(snapshot: Arc<Snapshot>, config: Config) -> Self {
        let policy = config.policy;
        let mut inventory = ClusterInventory::new(config);
        inventory.sync(Arc::clone(&snapshot), &[], |_| Held::default());
        let mut inspection = Self {
            state: State::new(inventory, ""),
            policy,
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

    /// Returns the inspected snapshot.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Returns the names of the resources, labels and annotations that describe GPUs.
    pub fn names(&self) -> &Names {
        &self.state.inventory.names
    }

    pub(crate) fn node_entries(&self) -> impl Iterator<Item = (&Arc<str>, &NodeEntry)> {
        self.state.inventory.nodes()
    }

    pub(crate) fn costs(&self) -> &CostCache {
        &self.state.inventory.costs
    }

    pub(crate) fn policy(&self) -> PolicyName {
        self.policy
    }

    /// Returns all nodes, sorted by name, also those without GPUs.
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

    /// Returns the classes of requests to plan for, with their probabilities. The rarest classes
    /// are left out; unless there are very many classes, they are at most a twentieth of all
    /// requests.
    pub fn classes(&self) -> &[(RequestClass, f64)] {
        self.state.inventory.costs.classes()
    }

    /// Returns the number of classes, including the rarest ones.
    pub fn class_count(&self) -> usize {
        self.state.inventory.class_count()
    }

    /// Returns [`Self::classes`] with the card kinds that may serve them.
    pub fn types(&self) -> PlannedClasses {
        PlannedClasses::new(self.classes(), self.state.inventory.costs.kinds())
    }

    /// Returns the pods that request cards, sorted by name; units of unknown size are left out.
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

    /// Returns the questions for a pod, which need not be in the snapshot.
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
        for constraints in constraints::pod_constraints(&self.snapshot, &subject) {
            let offer = &constraints.offer;
            let missing = constraints.missing_policies.iter();
            all.missing_policies
                .extend(missing.map(|p| (Arc::clone(&offer.name), Arc::clone(p))));
            for rule in constraints.rules.iter().filter(|r| *r.name != *RULE) {
                if !all.other_rules.contains(&rule.name) {
                    all.other_rules.push(Arc::clone(&rule.name));
                }
            }
            if let Some(rule) = constraints.rules.iter().find(|r| *r.name == *RULE) {
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

    fn policy_of(&self, offer: &Offer, rule: &model::Rule) -> Option<Arc<str>> {
        let has = |name: &&Arc<str>| {
            let policy = self.snapshot.policy(&offer.namespace, name);
            policy.is_some_and(|p| p.rules.iter().any(|r| r.name == rule.name))
        };
        offer.policies.iter().find(has).cloned()
    }

    fn request(&self, cost_request: &CostRequest) -> Result<GpuRequest, ProviderError> {
        let names = &self.state.inventory.names;
        GpuRequest::new(names, &cost_request.rule, cost_request.workload.as_ref())
    }

    /// Returns the GPUs that the pod requests. Fails if the rule cannot be read.
    pub fn request_summary(
        &self,
        cost_request: &CostRequest,
    ) -> Result<RequestSummary, ProviderError> {
        Ok(RequestSummary::new(&self.request(cost_request)?))
    }

    /// Returns the answer for each eligible node, in the request's order. Fails if the rule cannot
    /// be read.
    pub fn fits(
        &mut self,
        cost_request: &CostRequest,
    ) -> Result<Vec<(String, Fit)>, ProviderError> {
        let now = Instant::now();
        answers::fits(&mut self.state, &self.snapshot, cost_request.clone(), now)
    }

    /// Returns the worst compliance among the target pods. Fails if the rule cannot be read.
    pub fn evaluate(&self, request: &EvaluationRequest) -> Result<Evaluation, ProviderError> {
        answers::evaluation(&self.state, &self.snapshot, request, Instant::now())
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

fn workload(pod: &Pod) -> Workload {
    let placement = pod.placement.as_ref();
    let annotations = placement.map(|p| &p.annotations);
    let texts = |labels: &tautline_core::selector::Labels| {
        let pairs = labels.iter();
        pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    Workload {
        uid: pod.uid.to_string(),
        labels: texts(&pod.labels),
        annotations: texts(annotations.unwrap_or(&pod.annotations)),
        requests: amounts(&pod.requests),
        resource_claims: pod.claims().map(str::to_owned).collect(),
        containers: placement
            .iter()
            .flat_map(|p| &p.containers)
            .map(container)
            .collect(),
    }
}

fn container(of: &model::ContainerRequests) -> Container {
    Container {
        kind: of.kind,
        requests: amounts(&of.requests),
    }
}

fn amounts(requests: &model::Resources) -> BTreeMap<String, String> {
    let text = |(name, milli): (&str, i64)| (name.to_owned(), quantity::format_milli(milli));
    requests.iter().map(text).collect()
}

#[cfg(test)]
mod tests;
