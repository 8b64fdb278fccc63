//! What a bind needs of the underlay, by the pod's plan.

use std::sync::Arc;

use tautline_core::planning::NodeVerdict;

use super::Offered;
use crate::plans::Planned;

/// What the plan says of the node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The rules let the pod run there.
    Nothing,
    /// This offer of the Service `namespace/name` does.
    Offer(Offered, Arc<str>),
    /// There is no plan for it.
    Unknown,
}

/// `underlay`: there is one that could be asked.
pub(super) fn need(plan: Option<&Planned>, node: &str, underlay: bool) -> Need {
    let unplanned = if underlay {
        Need::Unknown
    } else {
        Need::Nothing
    };
    let Some(plan) = plan else {
        return unplanned;
    };
    let at = plan.nodes.position(node);
    match at.and_then(|at| plan.plan.verdicts.get(at)) {
        Some(NodeVerdict::Usable { .. }) => {
            let asked = plan.underlay.as_ref();
            match asked.and_then(|u| Some((u.offer_for(node)?, &u.service))) {
                Some((offer, service)) => Need::Offer(offer.clone(), Arc::clone(service)),
                None => Need::Nothing,
            }
        }
        _ => unplanned,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tautline_core::{constraints::PodIdentity, planning::Plan};
    use tautline_provider_client::PlanningRound;

    use super::{super::Consulted, *};

    fn offered(node: &str) -> Offered {
        Offered {
            id: "p1".into(),
            node: node.into(),
            cost: 1,
            expires: None,
            refused: None,
        }
    }

    /// `rules` keeps to the rules, `path` by the underlay's word, `far` not at all.
    fn plan(offers: Vec<Offered>) -> Planned {
        let usable = NodeVerdict::Usable {
            normalized_cost: 0,
            tie_break: 0,
            score: 10,
        };
        let far = NodeVerdict::Unusable {
            reason: "latency/OverLimit".into(),
            freeable: false,
        };
        Planned {
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
            underlay: Some(Consulted {
                service: "net/paths".into(),
                code: "Offered",
                error: None,
                asked: 2,
                took: Default::default(),
                offers,
                left_out: 0,
            }),
        }
    }

    #[test]
    fn what_a_node_needs_by_its_plan() {
        let refused = Offered {
            refused: Some("Dearer"),
            ..offered("rules")
        };
        let plan = plan(vec![offered("path"), refused]);
        let of = |node| need(Some(&plan), node, true);
        assert_eq!(of("rules"), Need::Nothing);
        assert_eq!(of("path"), Need::Offer(offered("path"), "net/paths".into()));
        assert_eq!(of("far"), Need::Unknown);
        assert_eq!(of("elsewhere"), Need::Unknown);
        assert_eq!(need(None, "path", true), Need::Unknown);
        // Where nothing could be allocated, everything is as without an underlay.
        assert_eq!(need(None, "path", false), Need::Nothing);
        assert_eq!(need(Some(&plan), "far", false), Need::Nothing);
    }
}
