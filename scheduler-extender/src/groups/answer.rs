//! Filter's answer for a member of a group: the node of its place, or the reason to wait.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tautline_core::{
    Snapshot,
    answer::{Answer, AnswerMode},
    group::{
        GroupKey, Membership,
        board::{Event, Verdict},
    },
    model::Rule,
    planning::{CostDetail, Costs, Plan, RuleAnswer, RuleOutcome},
};
use tautline_provider_client::{PlanningQuestion, PlanningRound, RuleRecord};
use tautline_traces::Span;

use super::{apply, ask_patiently, follow};
use crate::{plans::PodPlan, state::State};

/// The name of the rule by which records and reasons show the decision on a group. The rule's request
/// in a record is the group's name.
pub const RULE: &str = "group";

/// Returns the plan of a pod that is placed together with others; `None` for a pod that is placed
/// alone.
pub(crate) async fn member_plan(
    state: &Arc<State>,
    snapshot: &Snapshot,
    question: &PlanningQuestion,
) -> Option<PodPlan> {
    let pod = &question.subject;
    let membership = Membership::of(snapshot, &pod.namespace, &pod.labels, pod.owner)?;
    let begun = SystemTime::now();
    let decision = match membership {
        Membership::Unnamed(offer, label) => {
            let why = format!("the pod has no label {label}, which names its group: add it");
            Decision {
                offer,
                group: Arc::default(),
                place: None,
                code: "NoLabel",
                why,
            }
        }
        Membership::Member(group, rule) => {
            follow::catch_up(state);
            let verdict = ask_patiently(state, &group, &pod.uid).await;
            if rule.minimum.is_none() && matches!(verdict, Verdict::Waiting { .. }) {
                follow::read_size_again(state, &group);
            }
            decide(state, &group, question, verdict)?
        }
    };
    Some(decision.plan(question, begun))
}

struct Decision {
    offer: Arc<str>,
    /// The group's name.
    group: Arc<str>,
    /// The position and the round of the pod's place.
    place: Option<(usize, Arc<PlanningRound>)>,
    code: &'static str,
    why: String,
}

fn decide(
    state: &Arc<State>,
    group: &GroupKey,
    question: &PlanningQuestion,
    verdict: Verdict,
) -> Option<Decision> {
    let refused = |code, why| Some(Decision::refused(group, code, why));
    match verdict {
        Verdict::Alone => None,
        Verdict::Waiting { exist, minimum } => {
            let why = match minimum {
                Some(minimum) if (exist as u64) < u64::from(minimum) => {
                    format!("{exist} of {minimum} pods exist")
                }
                Some(minimum) => format!("the first {minimum} pods are being placed"),
                None => format!(
                    "{exist} pods exist, and their controller does not say how many there will be: \
                     set spec.group.minimum in the offer"
                ),
            };
            refused("Waiting", why)
        }
        Verdict::Planning => refused("Planning", format!("{} is being planned", group.name)),
        Verdict::NoRoom { placed, of, why } => {
            refused("NoRoom", format!("{placed} of {of} pods fit; {why}"))
        }
        Verdict::Place(node) => {
            let uid = question.subject.uid.as_str();
            let (at, round) = (
                question.nodes.position(&node),
                state.groups.round(group, uid),
            );
            let Some(place) = at.zip(round) else {
                let why = format!("kube-scheduler does not offer node {node}, the pod's place");
                let (group, uid) = (group.clone(), uid.into());
                apply(
                    state,
                    Event::Lost {
                        group,
                        uid,
                        why: why.clone(),
                    },
                );
                return refused("Planning", why);
            };
            let why = format!("{} has its place on {node}", question.subject.name);
            Some(Decision {
                offer: Arc::clone(&group.offer),
                group: Arc::clone(&group.name),
                place: Some(place),
                code: "Elsewhere",
                why,
            })
        }
    }
}

impl Decision {
    fn refused(group: &GroupKey, code: &'static str, why: String) -> Self {
        Self {
            offer: Arc::clone(&group.offer),
            group: Arc::clone(&group.name),
            place: None,
            code,
            why,
        }
    }

    fn plan(self, question: &PlanningQuestion, at: SystemTime) -> PodPlan {
        let (nodes, subject) = (Arc::clone(&question.nodes), question.subject.clone());
        let own = self.own_record(nodes.len());
        let answer = RuleAnswer {
            offer: 0,
            rule: RULE,
            weight: 1,
            prefer: Default::default(),
            outcome: &own.outcome,
        };
        let plan = Plan::new(nodes.len(), &[answer]);
        let place = self.place.as_ref().map(|(at, round)| (*at, &**round));
        let mut rules = place.map_or_else(Vec::new, |(at, round)| records(at, nodes.len(), round));
        rules.insert(0, own);
        let mode = AnswerMode::Decisive;
        let answer = Answer::new(&plan, &nodes, mode, &subject.uid, |_| 0);
        PodPlan {
            round: PlanningRound {
                subject,
                nodes,
                rules,
                plan,
                at,
                took: at.elapsed().unwrap_or_default(),
            },
            underlay: None,
            answer,
            mode,
            span: Span::current().reference(),
        }
    }

    /// The record of the group's own decision, which excludes all nodes but the place.
    fn own_record(&self, nodes: usize) -> RuleRecord {
        let mut costs = Costs::new(nodes);
        let place = self.place.as_ref().map(|(at, _)| *at);
        for at in 0..nodes {
            // One node has the text: it is the same for all.
            let detail = if at == 0 || place == Some(at) {
                self.why.as_str()
            } else {
                ""
            };
            let (cost, code) = if place == Some(at) {
                (0, "")
            } else {
                (-1, self.code)
            };
            costs.put(
                at,
                cost,
                CostDetail {
                    code,
                    detail,
                    ..CostDetail::default()
                },
            );
        }
        RuleRecord {
            offer: Arc::clone(&self.offer),
            rule: Rule {
                name: RULE.into(),
                request: self.group.to_string(),
                weight: 1,
                ..Rule::default()
            },
            provider: None,
            outcome: RuleOutcome::Costs(costs),
            error: None,
            took: Duration::ZERO,
            streamed: None,
            counts_pods: false,
        }
    }
}

/// The records of the round that checked the place, as of a request with more nodes.
fn records(at: usize, nodes: usize, round: &PlanningRound) -> Vec<RuleRecord> {
    let records = round.rules.iter();
    let widened = records.map(|record| {
        let outcome = match &record.outcome {
            RuleOutcome::Costs(known) => {
                let mut costs = Costs::new(nodes);
                costs.resolution = known.resolution;
                costs.request_cost = known.request_cost;
                if let Some(cost) = known.get(0) {
                    costs.put(at, cost, known.detail(0).unwrap_or_default());
                }
                RuleOutcome::Costs(costs)
            }
            unavailable => unavailable.clone(),
        };
        RuleRecord {
            offer: Arc::clone(&record.offer),
            rule: record.rule.clone(),
            provider: record.provider.clone(),
            outcome,
            error: record.error.clone(),
            ..*record
        }
    });
    widened.collect()
}
