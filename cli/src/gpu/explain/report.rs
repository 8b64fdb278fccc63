//! Collects the report of `tautline gpu explain`: the cards that a pod holds, and each node's fit
//! for its rules.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use anyhow::Result;
use serde::Serialize;
use tautline_core::{
    Snapshot,
    model::{Pod, key},
    node_filter::NodeFilter,
};
use tautline_gpu_placement::{dra::DeviceStore, policy::PolicyName as Policy};
use tautline_gpu_slice::{
    Config, Fit, Inspection, Location,
    inspection::{NodeGpus, Question, RequestSummary},
    report::{HolderTop, NodeTop},
};
use tautline_sdk::{EvaluationRequest, Reference};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodExplanation {
    pub(super) namespace: String,
    pub(super) pod: String,
    /// The pod's node; absent if the pod waits or has finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    pub(super) finished: bool,
    pub(super) policy: &'static str,
    pub(super) cards: Vec<HeldCard>,
    /// The offers with the missing policy that they name.
    pub(super) missing_policies: Vec<MissingPolicy>,
    /// The other rules of the pod's offers, which this report does not evaluate.
    pub(super) other_rules: Vec<String>,
    pub(super) rules: Vec<RuleReport>,
    /// The nodes that all rules, and Kubernetes itself, allow.
    pub(super) usable_nodes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeldCard {
    pub(super) card: String,
    pub(super) product: String,
    pub(super) healthy: bool,
    /// The reason why the card is not healthy, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fault: Option<String>,
    pub(super) milli: i64,
    /// True if the card is not written on the pod, since the device plugin chose it.
    pub(super) card_is_guessed: bool,
    pub(super) free_milli: i64,
    pub(super) shared_with: Vec<Sharer>,
    /// The fault, `over-committed`, or `ok`.
    #[serde(skip)]
    pub(super) health: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sharer {
    pub(super) pod: String,
    pub(super) milli: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MissingPolicy {
    pub(super) offer: String,
    pub(super) policy: String,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleReport {
    /// The offer; absent if no rule governs the pod, so that its own requests count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<String>,
    pub(super) request: String,
    pub(super) limit: String,
    /// The error of a rule that cannot be read; the other fields are empty then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) need: Option<RequestSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<ComplianceReport>,
    pub(super) nodes: Vec<NodeReport>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ComplianceReport {
    pub(super) compliance: String,
    pub(super) reason: String,
}

impl PodExplanation {
    pub(super) fn new(snapshot: Arc<Snapshot>, pod: &Pod, policy: Policy) -> Result<Self> {
        let config = Config {
            policy,
            ..Config::default()
        };
        let mut inspection = Inspection::new(Arc::clone(&snapshot), config, DeviceStore::default());
        let known = snapshot.pod(&pod.namespace, &pod.name);
        let finished = known.is_some_and(|p| p.finished);
        let node = known
            .filter(|p| !p.finished)
            .and_then(|p| p.node.as_deref());
        let questions = inspection.questions(pod);
        let mut rules = Vec::new();
        for question in &questions.rules {
            rules.push(RuleReport::of(&mut inspection, question, pod, node)?);
        }
        let missing = questions
            .missing_policies
            .iter()
            .map(|(offer, policy)| MissingPolicy {
                offer: offer.to_string(),
                policy: policy.to_string(),
            });
        Ok(Self {
            namespace: pod.namespace.to_string(),
            pod: pod.name.to_string(),
            node: node.map(str::to_owned),
            finished,
            policy: policy.as_str(),
            cards: held(&inspection, pod, node),
            missing_policies: missing.collect(),
            other_rules: questions
                .other_rules
                .iter()
                .map(|r| r.to_string())
                .collect(),
            usable_nodes: usable_in_all(&rules),
            rules,
        })
    }
}

fn usable_in_all(rules: &[RuleReport]) -> Vec<String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for node in rules.iter().flat_map(|r| &r.nodes).filter(|n| n.usable) {
        *counts.entry(&node.node).or_default() += 1;
    }
    let first = rules.first().map_or(&[][..], |r| &r.nodes);
    let all = first
        .iter()
        .filter(|n| counts.get(n.node.as_str()) == Some(&rules.len()));
    all.map(|n| n.node.clone()).collect()
}

impl RuleReport {
    fn of(
        inspection: &mut Inspection,
        question: &Question,
        pod: &Pod,
        node: Option<&str>,
    ) -> Result<Self> {
        let rule = &question.ask.rule;
        let by = question.by.as_ref();
        let mut answer = Self {
            offer: by.map(|(offer, _)| offer.name.to_string()),
            policy: by.map(|(_, policy)| policy.to_string()),
            request: rule.request.clone(),
            limit: rule.limit.clone(),
            ..Self::default()
        };
        match inspection.request_summary(&question.ask) {
            Ok(summary) => answer.need = Some(summary),
            Err(error) => {
                answer.error = Some(error.to_string());
                return Ok(answer);
            }
        }
        let fits = inspection.fits(&question.ask)?;
        answer.nodes = node_reports(inspection, fits, pod, node);
        if node.is_some() {
            let target = Reference::pod(&pod.namespace, &pod.name);
            let evaluation = inspection.evaluate(&EvaluationRequest {
                targets: BTreeMap::from([("pod".to_owned(), target)]),
                rule: rule.clone(),
                ..EvaluationRequest::default()
            })?;
            answer.state = Some(ComplianceReport {
                compliance: evaluation.compliance.to_string(),
                reason: evaluation.reason,
            });
        }
        Ok(answer)
    }
}

/// Returns the pod's cards, and the other pods on them.
fn held(inspection: &Inspection, pod: &Pod, node: Option<&str>) -> Vec<HeldCard> {
    let name = key(&pod.namespace, &pod.name);
    let mut cards = Vec::new();
    let nodes = inspection.nodes();
    let own = nodes.iter().filter(|n| Some(&**n.name) == node);
    let own = own.map(|n| NodeTop::new(n, inspection.snapshot(), None, None));
    for pool in own.flat_map(|node| node.pools) {
        for card in pool.cards {
            let health = card.health().to_owned();
            let (own, others): (Vec<_>, Vec<_>) =
                card.holders.into_iter().partition(|h| h.pod == name);
            let Some(first) = own.first() else { continue };
            let sharer = |HolderTop { pod, milli, .. }| Sharer { pod, milli };
            cards.push(HeldCard {
                card: card.card,
                product: pool.product.clone(),
                healthy: card.healthy,
                fault: card.fault,
                card_is_guessed: first.card_is_guessed,
                milli: own.iter().map(|h| h.milli).sum(),
                free_milli: card.free_milli,
                shared_with: others.into_iter().map(sharer).collect(),
                health,
            });
        }
    }
    cards
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeReport {
    pub(super) node: String,
    /// True if the pod is on this node; its own part counts as free.
    pub(super) own: bool,
    pub(super) usable: bool,
    /// The provider's reason code, or `Kubernetes` for a reason that keeps the pod from the
    /// node before any provider is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<&'static str>,
    pub(super) detail: String,
    /// True if the node would be usable without pods that are on it.
    pub(super) freeable: bool,
    /// The cost in the provider's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<i64>,
    /// The cost in the policy's own unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy_cost: Option<i64>,
    pub(super) cards: Vec<String>,
    /// True if the device plugin will choose the cards; `cards` then waste the least.
    pub(super) cards_are_guessed: bool,
}

fn node_reports(
    inspection: &Inspection,
    fits: Vec<(String, Fit)>,
    pod: &Pod,
    node: Option<&str>,
) -> Vec<NodeReport> {
    let nodes = inspection.nodes();
    let nodes: HashMap<&str, &NodeGpus<'_>> = nodes.iter().map(|n| (&**n.name, n)).collect();
    let filter = NodeFilter::new(inspection.snapshot(), pod);
    let answer = |fit| node_report(inspection, &nodes, fit, &filter, node);
    let mut all: Vec<NodeReport> = fits.into_iter().map(answer).collect();
    all.sort_by(|a, b| rank(a).cmp(&rank(b)));
    all
}

/// Sorts usable nodes by cost, then nodes that could be usable, then the rest by reason.
fn rank(answer: &NodeReport) -> impl Ord + '_ {
    let cost = answer.cost.filter(|_| answer.usable).unwrap_or(i64::MAX);
    (
        !answer.usable,
        cost,
        !answer.freeable,
        answer.code,
        answer.node.as_str(),
    )
}

fn node_report(
    inspection: &Inspection,
    nodes: &HashMap<&str, &NodeGpus<'_>>,
    (name, fit): (String, Fit),
    filter: &NodeFilter<'_>,
    own: Option<&str>,
) -> NodeReport {
    let snapshot = inspection.snapshot();
    let mut answer = NodeReport {
        own: own == Some(name.as_str()),
        node: name,
        ..NodeReport::default()
    };
    match fit {
        Fit::Unusable(unfit) => {
            answer.code = Some(unfit.code);
            answer.detail = unfit.detail;
            answer.freeable = unfit.freeable;
        }
        Fit::Usable {
            cost,
            policy_cost,
            detail,
            location,
            ..
        } => {
            answer.cost = Some(cost);
            answer.policy_cost = Some(policy_cost);
            answer.detail = detail;
            if let (Some(location), Some(node)) = (location, nodes.get(answer.node.as_str())) {
                answer.cards = cards(node, &location, answer.own);
                answer.cards_are_guessed = !location.shape.mode.is_recorded();
            }
            let misfit = snapshot.node(&answer.node).and_then(|n| filter.reason(n));
            answer.usable = misfit.is_none();
            if let Some(misfit) = misfit {
                answer.code = Some("Kubernetes");
                answer.detail = misfit.to_string();
            }
        }
    }
    answer
}

/// Returns the names of the cards at a location. On the pod's own node only a share's card is
/// named, since the pod's whole cards are not free there, but would be again.
fn cards(node: &NodeGpus<'_>, location: &Location, own: bool) -> Vec<String> {
    let Some(pool) = node.inventory.pools.get(location.pool) else {
        return Vec::new();
    };
    let name = |card: u16| Some(pool.cards.get(usize::from(card))?.name.to_string());
    let mut room = node
        .capacities
        .get(location.pool)
        .map(|r| (*r).clone())
        .unwrap_or_default();
    match room.take(&location.shape, location.card.map(usize::from)) {
        Ok(grant) if !own => grant.iter().filter_map(|(c, _)| name(*c)).collect(),
        _ => location.card.and_then(name).into_iter().collect(),
    }
}
