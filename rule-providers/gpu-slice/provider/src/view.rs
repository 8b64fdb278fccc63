//! A cluster at one moment, as the provider sees it: for tools that report on GPUs.
//! What it answers comes from the code that answers the provider's callers.

mod wanted;

use std::{collections::HashMap, sync::Arc, time::Instant};

use tautline_core::{
    Snapshot,
    constraints::{self, PodIdentity},
    model::{self, Offer, Pod},
    quantity,
};
use tautline_gpu_placement::{Inventory, Names, Room, Shape, TaskType, Types};
use tautline_sdk::{
    CostRequest, Evaluation, EvaluationRequest, ProviderError, Reference, Rule, Workload,
};

pub use wanted::Wanted;

use crate::{Config, RULE, answers, cost::Fit, ledger::Ledger, need::Need, state::State};

/// The cards of all nodes, who holds them, and the distribution of requests.
#[derive(Debug)]
pub struct View {
    /// Without reservations: those are the provider's own.
    state: State,
    snapshot: Arc<Snapshot>,
    /// Waiting pods whose need only a rule states, as what they were counted.
    by_rule: HashMap<String, Shape>,
}

/// One node's devices.
#[derive(Clone, Debug)]
pub struct NodeCards<'a> {
    /// Its name.
    pub name: &'a Arc<str>,
    /// What it has, and who holds it.
    pub inventory: &'a Inventory,
    /// What is left of each pool, in the inventory's order.
    pub rooms: Vec<&'a Room>,
}

/// A pod that was counted in the distribution of requests.
#[derive(Clone, Debug)]
pub struct Request {
    /// `namespace/name`.
    pub pod: String,
    /// What it asks.
    pub shape: Shape,
    /// A rule of an offer says so; else the pod's own requests or record.
    pub by_rule: bool,
}

/// What the provider is asked about a pod.
#[derive(Clone, Debug)]
pub struct Question {
    /// The offer whose rule it is, and the policy that has it; `None`: no rule
    /// governs the pod, and the question is about its own requests.
    pub by: Option<(Arc<Offer>, Arc<str>)>,
    /// The question, for all nodes.
    pub ask: CostRequest,
}

/// What one node says to a need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The node's name.
    pub node: String,
    /// Whether it can serve the need, and at what cost.
    pub fit: Fit,
}

/// All that the provider is asked about a pod.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    /// One for each offer that governs it with a rule `gpu-slice`; else one about its
    /// own requests.
    pub rules: Vec<Question>,
    /// Offer and policy, where an offer that governs it names one that is not there.
    pub missing_policies: Vec<(Arc<str>, Arc<str>)>,
    /// Names of the other rules of its offers: others answer for those.
    pub other_rules: Vec<Arc<str>>,
}

impl View {
    /// Reads `snapshot`. The distribution is learned from its pods: what they
    /// request or hold, and for those that wait also what rules state.
    pub fn new(snapshot: Arc<Snapshot>, config: Config) -> Self {
        let mut ledger = Ledger::of(config);
        ledger.sync(Arc::clone(&snapshot), &[], |_| Vec::new());
        let mut view = Self {
            state: State::new(ledger, ""),
            snapshot: Arc::clone(&snapshot),
            by_rule: HashMap::new(),
        };
        let waits = |p: &&Arc<Pod>| p.node.is_none() && !p.finished;
        let mut waiting: Vec<&Arc<Pod>> = snapshot.pods().filter(waits).collect();
        waiting.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        for pod in waiting {
            if view.state.ledger.request_of(pod).is_some() {
                continue;
            }
            let questions = view.about(pod, &[]);
            for Question { ask, .. } in questions.rules.iter().filter(|q| q.by.is_some()) {
                let workload = ask.workload.as_ref();
                // A rule that cannot be read is told when the pod is asked about.
                let need = Need::of(&view.state.ledger.names, &ask.rule, workload);
                let Some(need) = need.ok().filter(|n| n.by_rule) else {
                    continue;
                };
                // Pods of manifests have no UID.
                let name = key(pod);
                let uid = if pod.uid.is_empty() { &name } else { &*pod.uid };
                if let Some(shape) = view.state.ledger.asked(uid, &need) {
                    view.by_rule.insert(name, shape);
                }
            }
        }
        view.state.ledger.settle();
        view
    }

    /// The cluster that this is a view of.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// What resources, labels and annotations are called.
    pub fn names(&self) -> &Names {
        &self.state.ledger.names
    }

    /// Every node, by name; also those without devices.
    pub fn nodes(&self) -> Vec<NodeCards<'_>> {
        let mut all: Vec<_> = self.state.ledger.nodes().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        let room = |slot: &usize| self.state.ledger.board.room(*slot);
        let cards = all.into_iter().map(|(name, entry)| NodeCards {
            name,
            inventory: &entry.inventory,
            rooms: entry.slots.iter().filter_map(room).collect(),
        });
        cards.collect()
    }

    /// The distribution of requests, the most popular first. The rarest, together at
    /// most a twentieth of all, are left out; see [`View::classes_seen`].
    pub fn classes(&self) -> &[(TaskType, f64)] {
        self.state.ledger.board.classes()
    }

    /// How many classes there are with the rare ones.
    pub fn classes_seen(&self) -> usize {
        self.state.ledger.classes_seen()
    }

    /// The same distribution against the kinds of cards that there are.
    pub fn types(&self) -> Types {
        Types::new(self.classes(), self.state.ledger.board.kinds())
    }

    /// The pods that the distribution was learned from, by name.
    pub fn requests(&self) -> Vec<Request> {
        let mut all: Vec<Request> = self
            .snapshot
            .pods()
            .filter_map(|pod| {
                let (pod_key, own) = (key(pod), self.state.ledger.request_of(pod));
                let by_rule = own.is_none();
                let shape = own.or_else(|| self.by_rule.get(&pod_key).cloned())?;
                Some(Request {
                    pod: pod_key,
                    shape,
                    by_rule,
                })
            })
            .collect();
        all.sort_unstable_by(|a, b| a.pod.cmp(&b.pod));
        all
    }

    /// What the provider is asked about a pod, with all nodes.
    pub fn questions(&self, pod: &Pod) -> Questions {
        let mut nodes: Vec<String> = self.snapshot.nodes().map(|n| n.name.to_string()).collect();
        nodes.sort_unstable();
        self.about(pod, &nodes)
    }

    fn about(&self, pod: &Pod, nodes: &[String]) -> Questions {
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
                    .push(question(Some((Arc::clone(offer), policy)), wire(rule)));
            }
        }
        if all.rules.is_empty() {
            let rule = model::Rule {
                name: RULE.into(),
                ..model::Rule::default()
            };
            all.rules.push(question(None, wire(&rule)));
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

    /// What the question's pod needs.
    ///
    /// # Errors
    /// A rule that makes no sense.
    pub fn wanted(&self, ask: &CostRequest) -> Result<Wanted, ProviderError> {
        let need = Need::of(&self.state.ledger.names, &ask.rule, ask.workload.as_ref())?;
        Ok(Wanted::of(&need))
    }

    /// What each node of the question would cost, in the question's order.
    ///
    /// # Errors
    /// A rule that makes no sense.
    pub fn costs(&mut self, ask: &CostRequest) -> Result<Vec<Verdict>, ProviderError> {
        let mut all = Vec::with_capacity(ask.eligible_nodes.len());
        let each = |node, fit| all.push(Verdict { node, fit });
        let now = Instant::now();
        answers::costs(&mut self.state, &self.snapshot, ask.clone(), now, each)?;
        Ok(all)
    }

    /// Whether the pods of the question still have what they were given.
    ///
    /// # Errors
    /// A rule that makes no sense.
    pub fn evaluate(&self, ask: &EvaluationRequest) -> Result<Evaluation, ProviderError> {
        answers::evaluation(&self.state, &self.snapshot, ask)
    }
}

fn key(pod: &Pod) -> String {
    model::key(&pod.namespace, &pod.name)
}

fn wire(rule: &model::Rule) -> Rule {
    Rule {
        name: rule.name.to_string(),
        request: rule.request.clone(),
        limit: rule.limit.clone(),
    }
}

/// What the extender tells providers of a pod.
fn workload(pod: &Pod) -> Workload {
    let told = pod.placement.as_ref().map(|p| &p.annotations);
    let texts = |labels: &tautline_core::selector::Labels| {
        let pairs = labels.iter();
        pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    Workload {
        uid: pod.uid.to_string(),
        labels: texts(&pod.labels),
        annotations: texts(told.unwrap_or(&pod.annotations)),
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
