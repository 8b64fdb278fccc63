use std::sync::Arc;

use tautline_core::planning::NodeVerdict;

use crate::{plans::PodPlan, underlay::CheckedOffer};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum AllocationPlan {
    NotNeeded,
    /// The offer of the Service `namespace/name` that makes the node usable.
    Offer(CheckedOffer, Arc<str>),
    Unknown,
}

/// The allocation that a bind to `node` needs. Without an underlay no allocation is needed.
pub(super) fn allocation_plan(
    plan: Option<&PodPlan>,
    node: &str,
    has_underlay: bool,
) -> AllocationPlan {
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
