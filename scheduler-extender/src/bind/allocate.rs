//! Allocates at the underlay before a bind. The pod first gets a finalizer that names the
//! allocation: if this process stops, the pod still names the allocation to release.

use std::{sync::Arc, time::SystemTime};

use k8s_openapi::api::core::v1::Pod;
use tautline_core::{nodes::NodeSet, planning::NodeVerdict};
use tautline_provider_client::{AllocateError, planning_round::provider_name};
use tokio::time::Instant;

use super::{
    allocation::{Allocation, StaleError},
    context::{BindContext, BindFailure, MAX_TRIES, PatchError},
    finalizer::{self, PodState},
};
use crate::{
    bind_locks::BindLock, planning::plan_pod, plans::PodPlan, pod, underlay::CheckedOffer,
};

impl<'a> BindContext<'a> {
    /// Releases stale allocations of the pod, then allocates the offer of its plan. Returns `None`
    /// if the rules alone allow the node.
    pub async fn allocate(self) -> Result<Option<Allocation<'a>>, BindFailure> {
        let (state, args) = (self.state, self.args);
        let cached = self.snapshot.pod(&args.namespace, &args.pod);
        let has_stale = cached.is_some_and(|p| *p.uid == *args.uid && !p.underlay.is_empty());
        let has_underlay = !self.constraints.is_empty()
            && state
                .providers
                .underlay(self.snapshot, &args.namespace)
                .is_some();
        let mut needed = AllocationPlan::NotNeeded;
        if !self.constraints.is_empty() {
            let plan = state.plans.get(&args.namespace, &args.uid);
            needed = allocation_plan(plan.as_deref(), &args.node, has_underlay);
            if has_underlay
                && needed == AllocationPlan::NotNeeded
                && !plan.is_some_and(|p| p.is_recent())
            {
                // Another replica may have filtered the pod since, with another result.
                needed = AllocationPlan::Unknown;
            }
        }
        if needed == AllocationPlan::NotNeeded && !has_stale {
            return Ok(None);
        }
        let Some(lock) = state.bind_locks.try_lock(&args.uid) else {
            return Err(self.fail("is still being bound by an earlier request; try again"));
        };
        let mut pod = self.client.get().await?;
        match finalizer::pod_state(&pod, &args.uid) {
            PodState::Unbound => {}
            // The API server refuses the Binding with its reason; the allocation is in use.
            PodState::Bound => return Ok(None),
            PodState::Unbindable(reason) => return Err(self.fail(reason)),
        }
        let mut stale = finalizer::allocation_ids(&pod);
        if let AllocationPlan::Offer(offer, _) = &needed {
            stale.retain(|id| *id != offer.id);
        }
        if !stale.is_empty() {
            match self.release_stale(&pod, &stale).await {
                Ok(patched) => pod = patched,
                // The rules may allow the node only because of the stale allocation.
                Err(StaleError::NothingReleased(error)) if needed == AllocationPlan::NotNeeded => {
                    tracing::warn!(pod = %args.pod, namespace = %args.namespace, %error, "bound with an allocation of an earlier attempt");
                    return Ok(None);
                }
                Err(StaleError::NothingReleased(error) | StaleError::Partial(error)) => {
                    return Err(self.fail(&error));
                }
            }
            if has_underlay && needed == AllocationPlan::NotNeeded {
                // The plan may be due to the allocation that is released now.
                needed = AllocationPlan::Unknown;
            }
        }
        if needed == AllocationPlan::Unknown {
            needed = self.plan_node(&pod).await?;
        }
        match needed {
            AllocationPlan::Offer(offer, service) => {
                self.take_up(lock, pod, offer, &service).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Plans for the node alone, as filter would, since this replica has no plan for it.
    async fn plan_node(&self, pod: &Pod) -> Result<AllocationPlan, BindFailure> {
        let nodes: NodeSet = [self.args.node.as_str()].into_iter().collect();
        let question = pod::question(pod, self.pod.clone(), nodes);
        let deadline = Instant::now() + self.state.config.deadline;
        let plan = plan_pod(
            self.state,
            self.snapshot,
            self.constraints,
            question,
            deadline,
        );
        let plan = Arc::new(plan.await);
        self.state.history.push(&plan);
        let reason = match plan.plan.verdicts.first() {
            Some(NodeVerdict::Usable { .. }) => {
                return Ok(allocation_plan(Some(&plan), &self.args.node, true));
            }
            Some(NodeVerdict::Unusable { reason, .. }) => reason,
            None => "no plan",
        };
        Err((
            "refused",
            format!(
                "{} has no plan that allows node {} ({reason}); it has to be filtered again",
                self.client.object(),
                self.args.node
            ),
        ))
    }

    async fn take_up(
        self,
        lock: BindLock<'a>,
        pod: Pod,
        offer: CheckedOffer,
        service_name: &str,
    ) -> Result<Allocation<'a>, BindFailure> {
        let (metrics, node) = (&self.state.metrics, &self.args.node);
        let object = format!(
            "{}: the underlay's offer {} for node {node}",
            self.client.object(),
            offer.id
        );
        if offer.is_expired(SystemTime::now()) {
            metrics.underlay_allocation("expired");
            let error = format!("{object} has expired; the next attempt requests a new offer");
            return Err(("refused", error));
        }
        let Some(service) = self.underlay_named(service_name) else {
            let error = format!("{object}: the Service {service_name} is no longer an underlay");
            return Err(("refused", error));
        };
        // An earlier attempt with this id may have allocated the offer, whatever this call returns.
        let is_new = !finalizer::allocation_ids(&pod).contains(&offer.id);
        let pod = self
            .add_finalizer(pod, &offer.id, &provider_name(&service))
            .await?;
        let allocation = Allocation {
            context: self,
            service,
            id: offer.id,
            pod,
            conflicts: 0,
            _lock: lock,
        };
        let allocated = self
            .state
            .providers
            .allocate_underlay(self.snapshot, &allocation.service, &allocation.id)
            .await;
        match allocated {
            Ok(()) => {
                metrics.underlay_allocation("allocated");
                Ok(allocation)
            }
            Err(AllocateError::Refused(error)) => {
                metrics.underlay_allocation("refused");
                if is_new {
                    allocation.remove_finalizer().await;
                } else {
                    allocation.undo().await;
                }
                Err(("refused", format!("{object} is refused: {error}")))
            }
            Err(AllocateError::Unknown(error)) => {
                metrics.underlay_allocation("unanswered");
                allocation.undo().await;
                Err(("failed", format!("{object} is not confirmed: {error}")))
            }
        }
    }

    /// Adds the finalizer, unless another attempt has added one since the pod was read: then the
    /// pod would get a second allocation.
    async fn add_finalizer(
        &self,
        mut pod: Pod,
        id: &str,
        service: &str,
    ) -> Result<Pod, BindFailure> {
        for _ in 0..MAX_TRIES {
            if finalizer::allocation_ids(&pod).iter().any(|i| i != id) {
                return Err(self.fail("is being bound by another replica; try again"));
            }
            match self.client.add_finalizer(&pod, id, service).await {
                Ok(pod) => return Ok(pod),
                Err(PatchError::Conflict) => {
                    pod = self.client.get().await?;
                    match finalizer::pod_state(&pod, &self.args.uid) {
                        PodState::Unbound => {}
                        PodState::Bound => return Err(self.fail("is bound already")),
                        PodState::Unbindable(reason) => return Err(self.fail(reason)),
                    }
                }
                Err(error) => return Err(self.fail(&format!("takes no finalizer: {error}"))),
            }
        }
        Err(self.fail("takes no finalizer: other writers keep changing it; try again"))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum AllocationPlan {
    NotNeeded,
    /// The offer of the Service `namespace/name` that makes the node usable.
    Offer(CheckedOffer, Arc<str>),
    Unknown,
}

/// The allocation that a bind to `node` needs. Without an underlay no allocation is needed.
fn allocation_plan(plan: Option<&PodPlan>, node: &str, has_underlay: bool) -> AllocationPlan {
    match plan.and_then(|plan| Some((plan, plan.verdict(node)?))) {
        Some((plan, NodeVerdict::Usable { .. })) => {
            let result = plan.underlay.as_ref();
            match result.and_then(|u| Some((u.offer_for(node)?, &u.service))) {
                Some((offer, service)) => AllocationPlan::Offer(offer.clone(), Arc::clone(service)),
                None => AllocationPlan::NotNeeded,
            }
        }
        _ if has_underlay => AllocationPlan::Unknown,
        _ => AllocationPlan::NotNeeded,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tautline_core::{
        answer::{Answer, AnswerMode},
        constraints::PodIdentity,
        planning::Plan,
    };
    use tautline_provider_client::PlanningRound;

    use super::*;
    use crate::underlay::UnderlayResult;

    fn offer(node: &str) -> CheckedOffer {
        CheckedOffer {
            id: "p1".into(),
            node: node.into(),
            cost: 1,
            expires: None,
            refused: None,
        }
    }

    /// Node `rules` meets the rules, `path` needs an allocation, `far` is unusable.
    fn plan(offers: Vec<CheckedOffer>) -> PodPlan {
        let usable = NodeVerdict::Usable {
            normalized_cost: 0,
            tie_break: 0,
            score: 10,
        };
        let far = NodeVerdict::Unusable {
            reason: "latency/OverLimit".into(),
            freeable: false,
        };
        PodPlan {
            span: Default::default(),
            round: PlanningRound {
                subject: PodIdentity::default(),
                nodes: Arc::new(["rules", "path", "far"].into_iter().collect()),
                rules: Vec::new(),
                plan: Plan {
                    verdicts: vec![usable.clone(), usable, far],
                },
                at: SystemTime::now(),
                took: Default::default(),
            },
            underlay: Some(UnderlayResult {
                service: "net/paths".into(),
                code: "Offered",
                error: None,
                eligible_nodes: 2,
                took: Default::default(),
                offers,
                left_out: 0,
            }),
            answer: Answer::default(),
            mode: AnswerMode::default(),
        }
    }

    #[test]
    fn allocation_plan_follows_the_verdict_and_the_offer() {
        let refused = CheckedOffer {
            refused: Some("Dearer"),
            ..offer("rules")
        };
        let plan = plan(vec![offer("path"), refused]);
        let allocation = |node| allocation_plan(Some(&plan), node, true);
        assert_eq!(allocation("rules"), AllocationPlan::NotNeeded);
        assert_eq!(
            allocation("path"),
            AllocationPlan::Offer(offer("path"), "net/paths".into())
        );
        assert_eq!(allocation("far"), AllocationPlan::Unknown);
        assert_eq!(allocation("elsewhere"), AllocationPlan::Unknown);
        assert_eq!(allocation_plan(None, "path", true), AllocationPlan::Unknown);
        assert_eq!(
            allocation_plan(None, "path", false),
            AllocationPlan::NotNeeded
        );
        assert_eq!(
            allocation_plan(Some(&plan), "far", false),
            AllocationPlan::NotNeeded
        );
    }
}
