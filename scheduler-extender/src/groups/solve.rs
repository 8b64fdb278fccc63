//! Makes the joint plan of a group.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tautline_core::{
    Snapshot,
    group::{
        GroupKey,
        board::Places,
        planner::{self, Cause, Member, Pair, Plan, Problem},
    },
    model::Pod,
    nodes::NodeSet,
    planning::{NodeVerdict, fnv1a_64},
};
use tautline_provider_client::PlanningRound;
use tokio::time::Instant;

use super::{
    Rounds,
    costs::{Costs, Shape, cost},
};
use crate::state::State;

/// The longest time in which further nodes are tried as the first place.
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// The number of the planner's steps for one choice of candidates.
const MAX_STEPS: usize = 2_000_000;
/// The least and the greatest number of candidates at a time.
const CANDIDATES: std::ops::RangeInclusive<usize> = 48..=512;
/// The maximum number of plans that are made again because a provider refused one of the places.
const MAX_CORRECTIONS: usize = 3;
/// The maximum number of causes in the text about a plan without room.
const MAX_CAUSES: usize = 3;

/// A complete plan.
pub(super) struct Solved {
    pub places: Places,
    pub rounds: Rounds,
}

/// The largest part that was found, and what stops the rest.
pub(super) struct NoRoom {
    pub placed: usize,
    pub why: String,
}

/// Finds a node for every member.
pub(super) async fn solve(
    state: &State,
    group: &GroupKey,
    uids: &[Arc<str>],
) -> Result<Solved, NoRoom> {
    let snapshot = state.store.snapshot();
    let names = state.groups.follower.lock().names(uids);
    let found = names
        .iter()
        .filter_map(|name| snapshot.pod(&group.namespace, name));
    let unbound = found.filter(|pod| pod.node.is_none() && !pod.terminating);
    let members: Vec<Arc<Pod>> = unbound.cloned().collect();
    if members.len() < uids.len() {
        return Err(NoRoom {
            placed: 0,
            why: "a pod of the group has gone or has a node".into(),
        });
    }
    place(state, &snapshot, members, &group.name).await
}

/// Finds a node for each of these pods, which need not exist. The name decides between equal nodes.
pub(super) async fn place(
    state: &State,
    snapshot: &Arc<Snapshot>,
    members: Vec<Arc<Pod>>,
    name: &str,
) -> Result<Solved, NoRoom> {
    let costs = Costs { state, snapshot };
    let search = Search {
        shapes: costs.shapes(&members).await,
        costs,
        snapshot: Arc::clone(snapshot),
        members,
    };
    search.run(name).await
}

struct Search<'a> {
    costs: Costs<'a>,
    snapshot: Arc<Snapshot>,
    members: Vec<Arc<Pod>>,
    shapes: Vec<Shape>,
}

impl Search<'_> {
    async fn run(&self, group: &str) -> Result<Solved, NoRoom> {
        let until = Instant::now() + TIME_LIMIT;
        let usable = |shape: &Shape| shape.alone.plan.usable().count();
        let Some(hardest) = self.shapes.iter().min_by_key(|shape| usable(shape)) else {
            return Err(NoRoom {
                placed: 0,
                why: "the group has no pods".into(),
            });
        };
        let mut anchors: Vec<usize> = hardest.alone.plan.usable().collect();
        let nodes = &hardest.alone.nodes;
        anchors.sort_by_cached_key(|at| {
            let name = nodes.name(*at);
            (
                hardest.alone.plan.verdicts[*at].rank(),
                fnv1a_64(&[group, name]),
            )
        });
        if anchors.is_empty() {
            return Err(self.refused(hardest));
        }
        let mut tried: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut largest = None;
        for at in anchors {
            let anchor: Arc<str> = nodes.name(at).into();
            if !tried.insert(Arc::clone(&anchor)) {
                continue;
            }
            let candidates = self.candidates(hardest, &anchor).await;
            tried.extend(candidates.iter().cloned());
            match self.plan_among(candidates).await {
                Ok(solved) => return Ok(solved),
                Err(no_room) => {
                    let is_larger = |than: &NoRoom| than.placed < no_room.placed;
                    if largest.as_ref().is_none_or(is_larger) {
                        largest = Some(no_room);
                    }
                }
            }
            if Instant::now() > until {
                break;
            }
        }
        Err(largest.unwrap_or_else(|| self.refused(hardest)))
    }

    /// The nodes to search with a member of the hardest shape on the anchor: all that are usable, or
    /// the nearest.
    async fn candidates(&self, hardest: &Shape, anchor: &Arc<str>) -> Vec<Arc<str>> {
        let most = (4 * self.members.len()).clamp(*CANDIDATES.start(), *CANDIDATES.end());
        let mut chosen = BTreeSet::from([Arc::clone(anchor)]);
        for shape in &self.shapes {
            let alone = &shape.alone;
            let usable: NodeSet = alone.plan.usable().map(|at| alone.nodes.name(at)).collect();
            if usable.len() <= most {
                chosen.extend(usable.iter().map(Arc::from));
                continue;
            }
            let usable = Arc::new(usable);
            let near = self.costs.near((shape, hardest), anchor, &usable).await;
            let ranked = |node: &str| {
                let own = alone.verdict(node)?;
                let near = match &near {
                    Some(near) => near.verdict(node).filter(|v| v.is_usable())?.rank(),
                    None => (0, 0),
                };
                Some((near, own.rank(), fnv1a_64(&[anchor, node]), Arc::from(node)))
            };
            let mut ranked: Vec<_> = usable.iter().filter_map(ranked).collect();
            ranked.sort_unstable();
            chosen.extend(ranked.into_iter().take(most).map(|(.., node)| node));
        }
        chosen.into_iter().collect()
    }

    async fn plan_among(&self, candidates: Vec<Arc<str>>) -> Result<Solved, NoRoom> {
        let nodes: Arc<NodeSet> = Arc::new(candidates.iter().map(|name| &**name).collect());
        let mut shapes = Vec::new();
        for shape in &self.shapes {
            let weights = shape
                .constraints
                .iter()
                .flat_map(|c| &c.rules)
                .map(|r| r.weight);
            let room = self.costs.room(shape, &nodes, shape.members.len()).await;
            shapes.push(planner::Shape {
                alone: nodes.iter().map(|n| cost(shape.alone.verdict(n))).collect(),
                weight: weights.sum(),
                room: room.unwrap_or_else(|| vec![u32::MAX; nodes.len()]),
            });
        }
        let mut pairs = Vec::new();
        for (of, one) in self.shapes.iter().enumerate() {
            for (other, another) in self.shapes.iter().enumerate() {
                if of == other && one.members.len() < 2 {
                    continue;
                }
                if let Some(matrix) = self.costs.matrix((one, another), &nodes).await {
                    // The rows are the nodes of the peer.
                    pairs.push(Pair {
                        of: other,
                        other: of,
                        costs: Arc::new(matrix),
                    });
                }
            }
        }
        let mut corrections = 0;
        loop {
            let plan = self
                .search(&candidates, shapes.clone(), pairs.clone())
                .await;
            let places: Vec<usize> = plan.places.iter().copied().flatten().collect();
            if !plan.is_complete() || places.len() < self.members.len() {
                return Err(self.no_room(&plan));
            }
            let named: Vec<Arc<str>> = places
                .iter()
                .map(|at| Arc::clone(&candidates[*at]))
                .collect();
            let rounds = self.costs.check(&self.members, &named).await;
            let refused = rounds
                .iter()
                .position(|round| round.plan.usable().next().is_none());
            let Some(refused) = refused else {
                return Ok(self.solved(&named, rounds));
            };
            corrections += 1;
            if corrections > MAX_CORRECTIONS {
                let why = format!(
                    "{} is refused on {}",
                    self.members[refused].name, named[refused]
                );
                return Err(NoRoom {
                    placed: refused,
                    why: format!("{why} by {}", reason(&rounds[refused].plan.verdicts[0])),
                });
            }
            // The node takes fewer members than it seemed.
            let (at, of) = (places[refused], self.shape_of(refused));
            let before = places[..refused]
                .iter()
                .filter(|place| **place == at)
                .count();
            let room = &mut shapes[of].room[at];
            *room = (*room).min(u32::try_from(before).unwrap_or(u32::MAX));
        }
    }

    fn shape_of(&self, member: usize) -> usize {
        let of = self.shapes.iter().position(|s| s.members.contains(&member));
        of.unwrap_or_default()
    }

    async fn search(
        &self,
        candidates: &[Arc<str>],
        shapes: Vec<planner::Shape>,
        pairs: Vec<Pair>,
    ) -> Plan {
        let members = self.members.iter().enumerate().map(|(i, pod)| Member {
            pod: Arc::clone(pod),
            shape: self.shape_of(i),
        });
        let (members, nodes) = (members.collect(), candidates.to_vec());
        let snapshot = Arc::clone(&self.snapshot);
        let search = move || {
            let problem = Problem {
                snapshot: &snapshot,
                members,
                nodes,
                shapes,
                pairs,
            };
            planner::plan(&problem, MAX_STEPS)
        };
        // The search takes milliseconds of CPU, for which other requests must not wait.
        match tokio::task::spawn_blocking(search).await {
            Ok(plan) => plan,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    fn solved(&self, places: &[Arc<str>], rounds: Vec<PlanningRound>) -> Solved {
        let uid = |pod: &Arc<Pod>| Arc::<str>::from(&*pod.uid);
        let uids: Vec<Arc<str>> = self.members.iter().map(uid).collect();
        Solved {
            places: uids.iter().cloned().zip(places.iter().cloned()).collect(),
            rounds: uids
                .into_iter()
                .zip(rounds.into_iter().map(Arc::new))
                .collect(),
        }
    }

    /// Returns the result if a member of this shape has no usable node even alone.
    fn refused(&self, shape: &Shape) -> NoRoom {
        let reasons = shape
            .alone
            .plan
            .verdicts
            .iter()
            .map(|verdict| reason(verdict).to_owned());
        let causes = counted(reasons);
        let why = match causes.is_empty() {
            true => "Kubernetes' own rules admit no node".to_owned(),
            false => causes,
        };
        NoRoom {
            placed: 0,
            why: format!("{} finds no node: {why}", shape.pod.name),
        }
    }

    fn no_room(&self, plan: &Plan) -> NoRoom {
        let why = plan.stopped_by.as_ref().map(|stop| {
            let causes = stop.causes.iter().take(MAX_CAUSES);
            let texts = causes.map(|(cause, nodes)| format!("{} on {nodes}", text(cause)));
            let texts: Vec<String> = texts.collect();
            format!(
                "{} finds no node: {}",
                self.members[stop.member].name,
                texts.join(", ")
            )
        });
        NoRoom {
            placed: plan.placed(),
            why: why.unwrap_or_default(),
        }
    }
}

fn text(cause: &Cause) -> String {
    match cause {
        Cause::NoNode => "the node is gone".into(),
        Cause::OwnRule => "a rule refuses it".into(),
        Cause::Kubernetes(reason) => reason.to_string(),
        Cause::Room => "no room is left".into(),
        Cause::PairLimit => "a limit to the other pods is exceeded".into(),
        Cause::NotTried => "the search ended".into(),
    }
}

fn reason(verdict: &NodeVerdict) -> &str {
    match verdict {
        NodeVerdict::Usable { .. } => "",
        NodeVerdict::Unusable { reason, .. } => reason,
    }
}

fn counted(reasons: impl Iterator<Item = String>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let texts = counts.iter().take(MAX_CAUSES);
    let texts: Vec<String> = texts
        .map(|(reason, nodes)| format!("{reason} on {nodes}"))
        .collect();
    texts.join(", ")
}
