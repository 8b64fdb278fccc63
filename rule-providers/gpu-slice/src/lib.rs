//! The rule provider of `gpu-slice`: nodes that can really give a pod its GPUs,
//! and of those the ones that would be left with the least useless rest.
//!
//! What a pod needs comes from its own requests (`nvidia.com/gpu`,
//! `nvidia.com/gpu-shared`, `nvidia.com/mig-<profile>`); the rule's request may
//! state it instead (see [`need`]). What a node has left is its allocatable less
//! the requests of the pods bound to it.

pub mod need;
pub mod replicas;

use tautline_core::{Snapshot, model::Node, quantity};
use tautline_runtime::feed::Feed;
use tautline_sdk::{
    Compliance, CostAnswer, CostQuestion, EvaluateQuestion, Evaluation, ProviderError, RuleProvider,
};

use crate::need::{Amount, Need, SHARED, WHOLE};

/// How many pods share one card, as the device plugin's discovery labels it.
const REPLICAS: &str = "nvidia.com/gpu.replicas";
const PRODUCT: &str = "nvidia.com/gpu.product";
/// Memory of one card in MiB, by the same source.
const MEMORY: &str = "nvidia.com/gpu.memory";

/// The provider.
#[derive(Clone, Debug)]
pub struct GpuSlice {
    feed: Feed,
}

impl GpuSlice {
    /// A provider that knows nodes and pods from `feed`.
    pub fn new(feed: Feed) -> Self {
        Self { feed }
    }
}

/// What a node says to a need.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fit {
    Yes {
        cost: i64,
        detail: String,
    },
    No {
        code: &'static str,
        detail: String,
        freeable: bool,
    },
}

impl RuleProvider for GpuSlice {
    async fn endpoint_cost(&self, ask: CostQuestion) -> Result<CostAnswer, ProviderError> {
        let need = Need::of(&ask.rule, ask.workload.as_ref())?;
        let snapshot = self.feed.snapshot();
        let mut answer = CostAnswer::default();
        for name in &ask.eligible_nodes {
            let Some(node) = snapshot.node(name) else {
                answer.unusable(name, "UnknownNode", "not in the provider's view yet", false);
                continue;
            };
            match fit(
                &snapshot,
                node,
                &need,
                &ask.source.namespace,
                &ask.source.name,
            ) {
                Fit::Yes { cost, detail } => answer.usable(name, cost, detail),
                Fit::No {
                    code,
                    detail,
                    freeable,
                } => answer.unusable(name, code, detail, freeable),
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, ask: EvaluateQuestion) -> Result<Evaluation, ProviderError> {
        let snapshot = self.feed.snapshot();
        let mut parts = Vec::new();
        for target in ask.targets.values().filter(|t| t.kind == "Pod") {
            let (compliance, reason) = match snapshot.pod(&target.namespace, &target.name) {
                None => (
                    Compliance::Error,
                    format!("pod {} is not known", target.name),
                ),
                Some(pod) => match &pod.node {
                    None => (
                        Compliance::Pending,
                        format!("pod {} is not placed", pod.name),
                    ),
                    Some(node) => kept(&snapshot, pod, node),
                },
            };
            parts.push(Evaluation { compliance, reason });
        }
        if parts.is_empty() {
            return Ok(Evaluation::compliant("no pod is among the targets"));
        }
        let compliance = Compliance::of_parts(parts.iter().map(|p| p.compliance));
        let worst = parts.into_iter().find(|p| p.compliance == compliance);
        Ok(Evaluation {
            compliance,
            reason: worst.map(|p| p.reason).unwrap_or_default(),
        })
    }
}

/// Whether the node of a placed pod still offers what its pods hold.
fn kept(snapshot: &Snapshot, pod: &tautline_core::model::Pod, node: &str) -> (Compliance, String) {
    let Some(node) = snapshot.node(node) else {
        return (Compliance::Violation, format!("node {node} is gone"));
    };
    for (resource, wanted) in pod.requests.iter().filter(|(r, _)| need::is_gpu(r)) {
        let (has, used) = (
            node.allocatable.milli(resource),
            used(snapshot, &node.name, resource, "", ""),
        );
        if wanted > 0 && used > has {
            let reason = format!(
                "node {} offers {resource} {} and its pods hold {}",
                node.name,
                quantity::format_milli(has),
                quantity::format_milli(used)
            );
            return (Compliance::Violation, reason);
        }
    }
    (
        Compliance::Compliant,
        format!("node {} offers what its pods hold", node.name),
    )
}

/// What the pods of a node hold of a resource, but for one pod.
fn used(snapshot: &Snapshot, node: &str, resource: &str, namespace: &str, pod: &str) -> i64 {
    snapshot
        .pods_on(node)
        .iter()
        .filter(|p| *p.name != *pod || *p.namespace != *namespace)
        .fold(0, |sum, p| sum.saturating_add(p.requests.milli(resource)))
}

fn fit(snapshot: &Snapshot, node: &Node, need: &Need, namespace: &str, pod: &str) -> Fit {
    let no = |code, detail: String, freeable| Fit::No {
        code,
        detail,
        freeable,
    };
    let product = node.labels.get(PRODUCT).unwrap_or_default();
    if !need.models.is_empty() && !need.models.iter().any(|m| need::names_model(product, m)) {
        let wanted = need.models.join("|");
        return no(
            "WrongModel",
            format!("{product:?} is none of {wanted}"),
            false,
        );
    }
    // The resource that gives it, how much of it, and the milli of one unit.
    let (resource, units, unit_milli) = match &need.amount {
        Amount::Nothing => {
            return Fit::Yes {
                cost: 0,
                detail: "the pod asks for no GPU".into(),
            };
        }
        Amount::Cards(cards) => (WHOLE.to_owned(), *cards, 1000),
        Amount::Units { resource, units } => (
            resource.clone(),
            *units,
            unit_of(node, resource).unwrap_or(1000),
        ),
        Amount::Share { milli } | Amount::Memory { bytes: milli } => {
            let shared = SHARED.iter().find(|r| node.allocatable.milli(r) > 0);
            let Some(resource) = shared else {
                return no("NoSharedGpu", "no card of it is shared".into(), false);
            };
            let Some(unit) = unit_of(node, resource) else {
                return no(
                    "NoReplicasLabel",
                    format!("the label {REPLICAS} is missing"),
                    false,
                );
            };
            let milli = match &need.amount {
                Amount::Memory { bytes } => match memory_milli(node, *bytes) {
                    Some(milli) if milli <= 1000 => milli,
                    Some(_) => return no("CardTooSmall", "one card has less memory".into(), false),
                    None => {
                        return no(
                            "NoMemoryLabel",
                            format!("the label {MEMORY} is missing"),
                            false,
                        );
                    }
                },
                _ => *milli,
            };
            ((*resource).to_owned(), (milli + unit - 1) / unit, unit)
        }
    };
    // What the pod does not request it is not charged for, and nobody could keep
    // two such pods from the same card.
    if need
        .requested(&resource)
        .is_some_and(|requested| requested < units)
    {
        let detail = format!("the pod must request {units} {resource}");
        return no("NotRequested", detail, false);
    }
    let has = node.allocatable.milli(&resource) / 1000;
    if has < units {
        let detail = format!("offers {has} {resource}, {units} wanted");
        return no("NoSuchGpu", detail, false);
    }
    let free = has - used(snapshot, &node.name, &resource, namespace, pod) / 1000;
    if free < units {
        let detail = format!("{} of {has} {resource} free, {units} wanted", free.max(0));
        return no("GpuBusy", detail, true);
    }
    let left = free - units;
    // Of what is left, what another pod like this one could not use; then the
    // fuller node, so that empty ones stay whole.
    let useless_milli = (left % units.max(1)).saturating_mul(unit_milli);
    let left_milli = left.saturating_mul(unit_milli);
    let cost = useless_milli
        .saturating_mul(1 << 20)
        .saturating_add(left_milli.min((1 << 20) - 1));
    let detail = format!("leaves {left} of {has} {resource} free");
    Fit::Yes { cost, detail }
}

/// The milli of one unit of a shared resource; without the label unknown.
fn unit_of(node: &Node, resource: &str) -> Option<i64> {
    if !SHARED.contains(&resource) {
        return Some(1000);
    }
    let replicas: i64 = node.labels.get(REPLICAS)?.parse().ok()?;
    (1..=1000).contains(&replicas).then(|| 1000 / replicas)
}

/// So many bytes as a part of one card, rounded up.
fn memory_milli(node: &Node, bytes: i64) -> Option<i64> {
    let card_mib: i64 = node.labels.get(MEMORY)?.parse().ok()?;
    let card = i128::from(card_mib.max(1)) * (1 << 20);
    let milli = (i128::from(bytes) * 1000 + card - 1) / card;
    Some(i64::try_from(milli).unwrap_or(i64::MAX))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
