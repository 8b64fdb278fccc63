//! The data that all rules answer from, and the limits of their questions.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tautline_core::{Snapshot, TrustedNamespaces};
use tautline_sdk::{
    Compliance, CostRequest, Evaluation, EvaluationRequest, ProviderError, Reference,
};

use super::answer_metrics::AnswerMetrics;
use crate::{
    location::{each_two, is_pod, node_of},
    network::{Network, demanded_pairs::Requester, outside::host_and_port},
    tables::{Tables, table::RoundTrip},
};

const MAX_NODES: usize = 32;
/// The maximum number of pairs of a binding: those of [`MAX_NODES`] nodes.
const MAX_BINDING_PAIRS: usize = MAX_NODES * (MAX_NODES - 1) / 2;
/// The maximum number of pairs of a question, which take some 100 MB while it is answered.
const MAX_PAIRS: usize = 4_000_000;
const DEFAULT_TIME: Duration = Duration::from_millis(500);
/// The most of the caller's time that is used, as the scheduler waits.
const MAX_TIME: Duration = Duration::from_secs(2);
/// The least time in which the agent can be reached and its echoes can return.
pub(super) const MIN_TIME: Duration = Duration::from_millis(5);

#[derive(Clone, Copy)]
pub(crate) struct RuleContext<'a> {
    pub trusted: &'a TrustedNamespaces,
    pub tables: &'a ArcSwap<Tables<RoundTrip>>,
    pub network: &'a Arc<Network>,
    pub metrics: &'a AnswerMetrics,
}

impl RuleContext<'_> {
    pub fn requester<'n>(&self, namespace: &'n str) -> Requester<'n> {
        Requester {
            namespace,
            trusted: self.trusted.contains(namespace),
        }
    }

    /// Returns the nodes of the targets, each once, and of a pod of another cluster that cluster in
    /// place of the node; `Err` has the evaluation if there are no pairs to evaluate.
    pub fn nodes_of_targets(&self, request: &EvaluationRequest) -> Result<Vec<String>, Evaluation> {
        let snapshot = self.network.store.snapshot();
        let targets = request.targets.iter();
        let nodes = targets.map(|(name, target)| {
            let node = node_of_target(&snapshot, request, name, target)?;
            match target.cluster.as_str() {
                "" => Some(node),
                cluster => Some(cluster.to_owned()),
            }
        });
        let Some(mut nodes) = nodes.collect::<Option<Vec<String>>>() else {
            let reason = "not every target is placed";
            return Err(Evaluation::new(Compliance::Pending, reason));
        };
        nodes.sort_unstable();
        nodes.dedup();
        match nodes.len() {
            0 | 1 => Err(Evaluation::compliant("all on the same node")),
            n if n > MAX_NODES => {
                let reason = format!("{n} nodes in one binding; at most {MAX_NODES} are judged");
                Err(Evaluation::new(Compliance::Error, reason))
            }
            _ => Ok(nodes),
        }
    }

    /// Returns the pairs of places of different targets, each once and in order; `Err` has the
    /// evaluation if there are no pairs to evaluate.
    pub fn pairs_of_targets(
        &self,
        request: &EvaluationRequest,
    ) -> Result<Vec<(String, String)>, Evaluation> {
        let snapshot = self.network.store.snapshot();
        let places = |(name, target): (&String, &Reference)| match request.target_places.get(name) {
            Some(places) if !is_pod(target) && !places.is_empty() => Some(places.clone()),
            _ => Some(vec![node_of_target(&snapshot, request, name, target)?]),
        };
        let places = request.targets.iter().map(places);
        let Some(places) = places.collect::<Option<Vec<_>>>() else {
            let reason = "not every target is placed";
            return Err(Evaluation::new(Compliance::Pending, reason));
        };
        let too_many = || {
            let reason = format!(
                "more than {MAX_BINDING_PAIRS} pairs of nodes in one binding; give the offer fewer targets or endpoints"
            );
            Evaluation::new(Compliance::Error, reason)
        };
        if places.iter().any(|places| places.len() > MAX_BINDING_PAIRS) {
            return Err(too_many());
        }
        let all = each_two(&places).flat_map(|(some, others)| {
            some.iter().flat_map(|a| others.iter().map(move |b| (a, b)))
        });
        // No agent can measure the way between two addresses outside the cluster.
        let is_outside = |place: &str| host_and_port(place).is_some();
        let judged = all.filter(|(a, b)| a != b && !(is_outside(a) && is_outside(b)));
        let mut pairs = BTreeSet::new();
        for (a, b) in judged {
            pairs.insert((a.min(b), a.max(b)));
            if pairs.len() > MAX_BINDING_PAIRS {
                return Err(too_many());
            }
        }
        if pairs.is_empty() {
            return Err(Evaluation::compliant("all on the same node"));
        }
        let pairs = pairs.into_iter().map(|(a, b)| (a.clone(), b.clone()));
        Ok(pairs.collect())
    }

    pub fn nodes_of_pods(&self, request: &EvaluationRequest) -> BTreeSet<String> {
        let snapshot = self.network.store.snapshot();
        let pods = request.targets.iter().filter(|(_, target)| is_pod(target));
        pods.filter_map(|(name, target)| node_of_target(&snapshot, request, name, target))
            .collect()
    }
}

/// Returns the node of a target, or the place of a pod of another cluster: its node may have the
/// name of one of this cluster. A pod's node in the request takes precedence over the store's.
fn node_of_target(
    snapshot: &Snapshot,
    request: &EvaluationRequest,
    name: &str,
    target: &Reference,
) -> Option<String> {
    match request.target_nodes.get(name) {
        Some(node) if target.is_local_pod() => node.clone(),
        Some(node) if is_pod(target) => node.clone().filter(|n| host_and_port(n).is_some()),
        _ => node_of(snapshot, target),
    }
}

/// Returns the cost of a node that just meets a request, given in microseconds.
pub(crate) fn request_cost(micros: Option<u64>) -> Option<i64> {
    micros.map(|micros| i64::try_from(micros).unwrap_or(i64::MAX))
}

pub(crate) fn check_size(request: &CostRequest) -> Result<(), ProviderError> {
    let (nodes, peers) = (request.eligible_nodes.len(), request.peer_nodes.len());
    if nodes.saturating_mul(peers) <= MAX_PAIRS {
        return Ok(());
    }
    Err(ProviderError::BadRule(format!(
        "rule {:?}: {nodes} nodes by {peers} peers' nodes; at most {MAX_PAIRS} pairs are answered: give the offer fewer peers",
        request.rule.name
    )))
}

/// Returns the end of the measurements for an answer, which may take four fifths of the caller's
/// time; the rest is for the answer. Returns `None` if the time is too short.
pub(super) fn measuring_deadline(deadline: Option<Instant>, now: Instant) -> Option<Instant> {
    let left = deadline.map_or(DEFAULT_TIME, |d| d.saturating_duration_since(now));
    let time = left.min(MAX_TIME).mul_f64(0.8);
    (time >= MIN_TIME).then_some(now + time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_time_is_for_the_answer() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let time = |d| measuring_deadline(d, now).map(|u| u - now);
        assert_eq!(time(Some(now + ms(500))), Some(ms(400)));
        assert_eq!(time(None), Some(ms(400)));
        assert_eq!(time(Some(now + ms(90_000))), Some(ms(1_600)));
        assert_eq!(time(Some(now + ms(5))), None);
        assert_eq!(time(Some(now)), None);
    }
}
