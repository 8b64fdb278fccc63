//! Computes the answers to EndpointCost and Evaluate.

use std::{sync::Arc, time::Instant};

use tautline_core::Snapshot;
use tautline_sdk::{
    Compliance, CostAnswer, CostRequest, Evaluation, EvaluationRequest, NodeCost, ProviderError,
};

use crate::{
    cluster_inventory::ClusterInventory,
    compliance,
    cost::{self, PreparedRequest},
    dra::{ExtendedResources, PodClaims},
    fit::{Fit, POSITION_STEPS, Unfit},
    gpu_request::{Amount, GpuRequest},
    state::{PodHoldings, State},
    use_compliance,
};

pub(crate) fn answer(
    state: &mut State,
    snapshot: &Snapshot,
    mut cost_request: CostRequest,
    now: Instant,
) -> Result<CostAnswer, ProviderError> {
    let in_flight = std::mem::take(&mut cost_request.in_flight);
    state.supposing(in_flight, now, |state| {
        answer_now(state, snapshot, &cost_request, now)
    })
}

fn answer_now(
    state: &mut State,
    snapshot: &Snapshot,
    cost_request: &CostRequest,
    now: Instant,
) -> Result<CostAnswer, ProviderError> {
    let question = Question::new(state, snapshot, cost_request, now)?;
    let mut prepared = PreparedRequest::new(&question.request);
    let mut answer = CostAnswer::with_capacity(cost_request.eligible_nodes.len());
    answer.resolution = question.resolution(state);
    answer.per_pod = question.is_per_pod();
    for name in &cost_request.eligible_nodes {
        let fit = question.fit(state, snapshot, name, &mut prepared, now);
        answer.push(node_cost(name, &fit));
    }
    Ok(answer)
}

fn node_cost<'a>(node: &'a str, fit: &'a Fit) -> NodeCost<'a> {
    match fit {
        Fit::Usable {
            cost,
            tie_break,
            detail,
            ..
        } => NodeCost {
            node,
            cost: *cost,
            tie_break: *tie_break,
            detail,
            ..NodeCost::default()
        },
        Fit::Unusable(unfit) => NodeCost {
            node,
            cost: -1,
            code: unfit.code,
            detail: &unfit.detail,
            freeable: unfit.freeable,
            ..NodeCost::default()
        },
    }
}

pub(crate) fn fits(
    state: &mut State,
    snapshot: &Snapshot,
    cost_request: CostRequest,
    now: Instant,
) -> Result<Vec<(String, Fit)>, ProviderError> {
    let question = Question::new(state, snapshot, &cost_request, now)?;
    let mut prepared = PreparedRequest::new(&question.request);
    let fit = |name: String| {
        let fit = question.fit(state, snapshot, &name, &mut prepared, now);
        (name, fit)
    };
    Ok(cost_request.eligible_nodes.into_iter().map(fit).collect())
}

struct Question {
    request: GpuRequest,
    claims: Option<PodClaims>,
    extended: Option<ExtendedResources>,
    /// True if the pod names claims. A claim that is not known yet may appear at any time.
    names_claims: bool,
    /// The pod's node; `None`: it has none.
    bound_to: Option<Arc<str>>,
    holdings: PodHoldings,
}

impl Question {
    /// Reads the request, and counts it in the distribution of requests.
    fn new(
        state: &mut State,
        snapshot: &Snapshot,
        cost_request: &CostRequest,
        now: Instant,
    ) -> Result<Self, ProviderError> {
        let workload = cost_request.workload.as_ref();
        let request = GpuRequest::new(&cost_request.rule, workload)?;
        let uid = workload.map_or("", |w| w.uid.as_str());
        let claims = state.devices.requested_by(cost_request);
        let extended = workload
            .and_then(|workload| ExtendedResources::new(&state.devices, &request, workload));
        let pod = snapshot.pod(&cost_request.source.namespace, &cost_request.source.name);
        // A pod's own requests were counted when the watch first showed the pod.
        let is_of_claims = request.amount == Amount::Nothing && claims.is_some();
        if !is_of_claims && pod.is_none_or(|p| state.inventory.pod_shape(p).is_none()) {
            state.inventory.count_request(uid, &request);
        }
        Ok(Self {
            request,
            claims,
            extended,
            names_claims: workload.is_some_and(|w| !w.resource_claims.is_empty()),
            bound_to: pod.and_then(|pod| pod.node.clone()),
            holdings: PodHoldings::new(state, uid, pod, now),
        })
    }

    /// Returns the largest cost difference of equally good nodes, without tie-breaks.
    fn resolution(&self, state: &State) -> i64 {
        match self.request.amount {
            Amount::Cards(_) | Amount::Share(_) | Amount::Memory(_) | Amount::OfAgent(_) => state
                .inventory
                .costs
                .resolution()
                .saturating_mul(POSITION_STEPS),
            Amount::Nothing | Amount::Units { .. } => 0,
        }
    }

    /// Returns whether the costs depend on the pod by more than its own holdings: claims of other
    /// pods change the free devices of drivers.
    fn is_per_pod(&self) -> bool {
        self.names_claims || self.claims.is_some() || self.extended.is_some()
    }

    fn fit(
        &self,
        state: &mut State,
        snapshot: &Snapshot,
        name: &str,
        prepared: &mut PreparedRequest<'_>,
        now: Instant,
    ) -> Fit {
        let State {
            devices, inventory, ..
        } = state;
        let models = &self.request.models;
        let node = snapshot.node(name);
        let claims = self.claims.as_ref();
        let is_here = self.bound_to.as_deref() == Some(name);
        let is_replaced = self.bound_to.is_some() && !is_here;
        let reach = |claims: &PodClaims| node.is_none_or(|node| claims.reach(node, is_replaced));
        if !claims.is_none_or(reach) {
            let detail = "a claim of the pod has devices of other nodes";
            return Fit::Unusable(Unfit::new(0, "NoSuchGpu", detail));
        }
        let extended = self.extended.as_ref().zip(node);
        let mut pending = claims.map_or_else(Vec::new, |claims| claims.pending.clone());
        if is_replaced {
            // A pod in this one's place has claims of its own.
            pending.extend(claims.iter().flat_map(|claims| claims.own.clone()));
        }
        let missing = extended.filter(|_| !is_here).into_iter();
        pending.extend(missing.flat_map(|(e, node)| e.pending(node)));
        if let Some((extended, _)) = extended.filter(|(e, node)| e.are_for(node)) {
            return match &extended.too_few {
                Some(unfit) => Fit::Unusable(unfit.clone()),
                None => devices.fit(inventory, snapshot, name, &pending, models),
            };
        }
        let is_of_claims = self.request.amount == Amount::Nothing && claims.is_some();
        // The node has the requested GPUs without drivers, and these decide the cost. The rest needs
        // devices.
        if is_of_claims || !pending.is_empty() {
            let fit = devices.fit(inventory, snapshot, name, &pending, &[]);
            if is_of_claims || matches!(fit, Fit::Unusable(_)) {
                return fit;
            }
        }
        let without_pod = self.holdings.node_without_pod(state, snapshot, name, now);
        let ClusterInventory { nodes, costs, .. } = &mut state.inventory;
        match (nodes.get(name), &without_pod) {
            (None, _) => Fit::Unusable(Unfit::unknown_node()),
            (Some(node), None) => cost::fit(costs, node, true, prepared),
            (_, Some(node)) => cost::fit(costs, node, false, prepared),
        }
    }
}

pub(crate) fn evaluation(
    state: &State,
    snapshot: &Snapshot,
    evaluation_request: &EvaluationRequest,
    now: Instant,
) -> Result<Evaluation, ProviderError> {
    let request = GpuRequest::new(&evaluation_request.rule, None)?;
    let (mut parts, mut without_gpus) = (Vec::new(), Vec::new());
    let targets = evaluation_request.targets.iter();
    for (name, target) in targets.filter(|(_, t)| t.kind == "Pod") {
        let Some(pod) = snapshot.pod_of(target) else {
            let pod = &target.name;
            if !target.is_local_pod() {
                let reason = format!(
                    "pod {pod} is of cluster {}: gpu-slice knows only the pods of this cluster",
                    target.cluster
                );
                parts.push(Evaluation::new(Compliance::Error, reason));
                continue;
            }
            parts.push(match evaluation_request.target_nodes.get(name) {
                Some(Some(node)) => Evaluation::new(
                    Compliance::Error,
                    format!("pod {pod} on node {node} is not known yet"),
                ),
                // A provider that does not reserve does not watch waiting pods.
                _ => Evaluation::new(
                    Compliance::Pending,
                    format!("pod {pod} is not placed, as far as is known"),
                ),
            });
            continue;
        };
        let node = pod.node.as_deref();
        parts.extend(node.and_then(|node| state.devices.evaluate(node, pod)));
        let evaluation = compliance::of_pod(state, snapshot, pod, &request);
        match compliance::has_gpus(state, pod) {
            true => parts.push(evaluation),
            false => without_gpus.push(evaluation),
        }
        parts.extend(use_compliance::of_pod(state, pod, now));
    }
    // The first of the worst counts.
    parts.extend(without_gpus);
    let worst = compliance::worst(parts);
    Ok(worst.unwrap_or_else(|| Evaluation::compliant("no pod is among the targets")))
}
