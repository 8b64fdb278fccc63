//! Inspects one snapshot of a cluster for reporting tools, with the provider's own code.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::Arc,
    time::Instant,
};

use serde::Serialize;
use tautline_core::{
    Snapshot,
    constraints::{self, PodIdentity},
    model::{self, Offer, Pod},
    quantity,
};
use tautline_gpu_placement::{
    Inventory, NodeCapacity, PlannedClasses, RequestClass, Shape, SharingMode, dra::DeviceStore,
    inventory::CardPool, policy::PolicyName,
};
use tautline_sdk::{
    Container, CostRequest, Evaluation, EvaluationRequest, ProviderError, Reference, Rule, Workload,
};

use crate::{
    RULE, answers,
    cluster_inventory::{ClusterInventory, Config, Held},
    fit::Fit,
    gpu_request::{Amount, GpuRequest},
    request_learner::RequestLearner,
    state::State,
};

/// The provider's view of one snapshot.
#[derive(Debug)]
pub struct Inspection {
    pub(crate) state: State,
    pub(crate) policy: PolicyName,
    snapshot: Arc<Snapshot>,
    /// The shapes of waiting pods whose amount or models a rule states, by `namespace/name`;
    /// `None`: no shape is known by which the pod could run.
    pub(crate) by_rule: HashMap<String, Option<Shape>>,
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
pub(crate) struct CountedRequest {
    /// The pod as `namespace/name`.
    pub(crate) pod: String,
    pub(crate) shape: Shape,
    /// True if a rule of an offer states the shape; otherwise the pod does.
    pub(crate) by_rule: bool,
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

/// The GPUs that a pod requests, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestSummary {
    /// The requested GPUs, such as `2 whole cards` or `250m of one card`; `None`: no GPU is
    /// requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// The minimum when the node degrades, in the same form.
    #[serde(rename = "least", skip_serializing_if = "Option::is_none")]
    pub minimum: Option<String>,
    /// The parts of product names that a card may have; empty: any card.
    pub models: Vec<String>,
    /// True if the rule states the request; otherwise the pod does.
    pub by_rule: bool,
    /// The requested CPU, in thousandths of a core.
    pub cpu_milli: i64,
    /// The requested main memory, in bytes.
    pub memory_bytes: i64,
}

impl Inspection {
    /// Learns the distribution of requests from requests, claims and cards of pods, and from rules
    /// of waiting pods. `devices` has the cards that agents offer as devices, and the claims.
    pub fn new(snapshot: Arc<Snapshot>, config: Config, devices: DeviceStore) -> Self {
        let policy = config.policy;
        let mut inventory = ClusterInventory::new(config);
        // The pods' own requests are counted below, unless a rule replaces them.
        let learner = mem::replace(&mut inventory.learner, RequestLearner::fixed());
        inventory.sync(Arc::clone(&snapshot), &[], |node| {
            Held::default().with_claims(&devices, &snapshot, node)
        });
        inventory.learner = learner;
        let mut inspection = Self {
            state: State::new(inventory, ""),
            policy,
            snapshot: Arc::clone(&snapshot),
            by_rule: HashMap::new(),
        };
        inspection.state.devices.pools = devices;
        let pools = inspection.state.inventory.pools_by_shape();
        let waits = |p: &&Arc<Pod>| p.node.is_none() && !p.finished;
        let mut waiting: Vec<(&Arc<Pod>, Option<Shape>)> = snapshot
            .pods()
            .filter(waits)
            .filter_map(|pod| Some((pod, inspection.rule_shape(pod, &pools)?)))
            .collect();
        waiting.sort_by(|(a, _), (b, _)| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let shapes = waiting.iter().map(|(pod, shape)| (key(pod), shape.clone()));
        inspection.by_rule = shapes.collect();
        let own = snapshot
            .pods()
            .filter(|p| !inspection.by_rule.contains_key(&key(p)));
        let own: Vec<Shape> = own.filter_map(|pod| inspection.pod_shape(pod)).collect();
        let inventory = &mut inspection.state.inventory;
        inventory.learner.count_shapes(&mut inventory.costs, &own);
        for (pod, shape) in waiting {
            let name = key(pod);
            let uid = if pod.uid.is_empty() { &name } else { &*pod.uid };
            shape.iter().for_each(|s| inventory.count_shape(uid, s));
        }
        inspection.state.inventory.plan_now();
        inspection
    }

    /// Returns the inspected snapshot.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Returns all nodes, sorted by name, also those without GPUs.
    pub fn nodes(&self) -> Vec<NodeGpus<'_>> {
        let inventory = &self.state.inventory;
        let mut all: Vec<_> = inventory.nodes.iter().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        let capacity = |slot: &usize| inventory.costs.capacity(*slot);
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

    /// Returns [`Self::classes`] with the card kinds that may serve them.
    pub fn types(&self) -> PlannedClasses {
        PlannedClasses::new(self.classes(), self.state.inventory.costs.kinds())
    }

    /// Returns the pods that request cards, sorted by name; units of unknown size are left out.
    pub(crate) fn requests(&self) -> Vec<CountedRequest> {
        let counted = |pod: &Arc<Pod>| {
            let pod_key = key(pod);
            let by_rule = self.by_rule.get(&pod_key).cloned();
            Some(CountedRequest {
                by_rule: by_rule.is_some(),
                shape: by_rule.unwrap_or_else(|| self.pod_shape(pod))?,
                pod: pod_key,
            })
        };
        let mut all: Vec<CountedRequest> = self.snapshot.pods().filter_map(counted).collect();
        all.sort_unstable_by(|a, b| a.pod.cmp(&b.pod));
        all
    }

    /// Returns the shape of the pod's claims, or else of its other requests.
    fn pod_shape(&self, pod: &Pod) -> Option<Shape> {
        let milli = self.state.devices.pools.claimed_milli(pod);
        if milli == 0 {
            return self.state.inventory.pod_shape(pod);
        }
        Some(Shape {
            cpu_milli: pod.requests.milli("cpu"),
            memory_bytes: pod.requests.milli("memory") / 1000,
            ..Shape::from_milli(SharingMode::Claim, milli)
        })
    }

    /// Returns the shape by the first rule that states an amount or models for the pod; `None`: no
    /// rule does. A rule that cannot be read gives no shape; it is reported when the pod is
    /// inspected.
    fn rule_shape(&self, pod: &Pod, pools: &[&CardPool]) -> Option<Option<Shape>> {
        let questions = self.questions_for(pod, &[]).rules.into_iter();
        let mut asks = questions.filter(|q| q.by.is_some()).map(|q| q.ask);
        asks.find_map(|ask| {
            let request = GpuRequest::new(&ask.rule, ask.workload.as_ref());
            let states_request = request.as_ref().map_or(true, GpuRequest::is_by_rule);
            let shape = |r: GpuRequest| self.state.inventory.served_shape(&r, pools);
            states_request.then(|| request.ok().and_then(shape))
        })
    }

    /// Returns the questions for a pod, which need not be in the snapshot.
    pub fn questions(&self, pod: &Pod) -> Questions {
        let mut nodes: Vec<String> = self.snapshot.nodes().map(|n| n.name.to_string()).collect();
        nodes.sort_unstable();
        self.questions_for(pod, &nodes)
    }

    fn questions_for(&self, pod: &Pod, nodes: &[String]) -> Questions {
        let subject = PodIdentity::from(pod);
        let question = |by, rule: &model::Rule| Question {
            by,
            ask: CostRequest {
                source: Reference::pod(&pod.namespace, &pod.name),
                rule: Rule {
                    name: rule.name.to_string(),
                    request: rule.request.clone(),
                    limit: rule.limit.clone(),
                },
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
                let by = Some((Arc::clone(offer), policy));
                all.rules.push(question(by, rule));
            }
        }
        if all.rules.is_empty() {
            let rule = model::Rule {
                name: RULE.into(),
                ..model::Rule::default()
            };
            all.rules.push(question(None, &rule));
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

    /// Returns the GPUs that the pod requests. Fails if the rule cannot be read.
    pub fn request_summary(
        &self,
        cost_request: &CostRequest,
    ) -> Result<RequestSummary, ProviderError> {
        let request = GpuRequest::new(&cost_request.rule, cost_request.workload.as_ref())?;
        Ok(RequestSummary {
            gpu: text(&request.amount),
            minimum: request.minimum.as_ref().and_then(text),
            models: request.models.iter().map(ToString::to_string).collect(),
            by_rule: request.by_rule,
            cpu_milli: request.cpu_milli,
            memory_bytes: request.memory_bytes,
        })
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

fn text(amount: &Amount) -> Option<String> {
    Some(match amount {
        Amount::Nothing => return None,
        Amount::Cards(cards) => thousandths(cards.saturating_mul(1000)),
        Amount::Share(milli) => thousandths(*milli),
        Amount::Memory(bytes) => memory(*bytes),
        Amount::OfAgent(own) => match (own.milli, own.memory_gib) {
            (milli, 0) => thousandths(milli),
            (0, _) => memory(own.memory_bytes()),
            (milli, _) => format!(
                "{} or {}, the larger",
                thousandths(milli),
                memory(own.memory_bytes())
            ),
        },
        Amount::Units { resource, units } => format!("{units} {resource}"),
    })
}

fn memory(bytes: i64) -> String {
    let text = quantity::format_milli(bytes.saturating_mul(1000));
    format!("{text} memory of one card")
}

fn thousandths(milli: i64) -> String {
    let cards = |n: i64| format!("{n} whole card{}", if n == 1 { "" } else { "s" });
    match (milli / 1000, milli % 1000) {
        (0, share) => format!("{share}m of one card"),
        (whole, 0) => cards(whole),
        (whole, share) => format!("{} and {share}m of another", cards(whole)),
    }
}

fn workload(pod: &Pod) -> Workload {
    let placement = pod.placement.as_ref();
    let annotations = placement.map(|p| &p.annotations);
    let texts = |labels: &tautline_core::selector::Labels| {
        let pairs = labels.iter();
        pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    let containers = placement.iter().flat_map(|p| &p.containers);
    let container = |of: &model::ContainerRequests| Container {
        kind: of.kind,
        requests: amounts(&of.requests),
    };
    Workload {
        uid: pod.uid.to_string(),
        labels: texts(&pod.labels),
        annotations: texts(annotations.unwrap_or(&pod.annotations)),
        requests: amounts(&pod.requests),
        resource_claims: pod.claims().map(str::to_owned).collect(),
        containers: containers.map(container).collect(),
    }
}

fn amounts(requests: &model::Resources) -> BTreeMap<String, String> {
    let text = |(name, milli): (&str, i64)| (name.to_owned(), quantity::format_milli(milli));
    requests.iter().map(text).collect()
}

#[cfg(test)]
mod tests;
