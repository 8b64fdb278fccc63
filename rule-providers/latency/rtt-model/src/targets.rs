//! The choice of a node's targets, the nodes that it should measure. Half of a labelled node's
//! targets are in its rack or zone, the rest are random.
//!
//! A node that is alone in its zone, has no zone, or whose zone holds half of all nodes, has other
//! targets. An eighth (at least two) are landmarks, which are the same for all nodes that reach
//! them. Half are near, by predicted time and by how alike both nodes' times are to the nodes that
//! both measured. The rest are random. Near targets are picked a few at a time, each time from a
//! newer fit.
//!
//! Random targets are ranked by a seeded hash of both names: replicas agree, and a new or removed
//! node changes few targets.

use crate::{Fit, Model, NodeId, hash, model::Node, tuning::TUNING};

const MIN_LANDMARKS: usize = 2;
/// The part of a node's targets that are near ones.
const NEAR_TARGETS_RATIO: f32 = 0.5;
/// The number of calls in which all near targets are picked.
const NEAR_TARGETS_STEPS: usize = 6;
/// The ratio of a node's predicted time to the farthest near target's time below which the node
/// replaces that target.
const MAX_REPLACEMENT_RATIO: f32 = 0.5;

struct NearCandidate {
    rank: f32,
    node: NodeId,
    micros: f32,
}

impl Model {
    /// Replaces `out`, which holds the present targets of `node`, by the at most `k` nodes that it
    /// should measure. Near targets stay unless a much nearer node is found. Call this again after
    /// each fit: places are left for near targets until a fit knows the node. The choice is
    /// deterministic.
    ///
    /// `unreachable` lists the nodes that `node` could not reach lately. Other nodes replace them
    /// among the landmarks, and among near targets if they were never measured. Unreachable random
    /// targets stay: they show when the network is whole again.
    pub fn targets(
        &self,
        fit: Option<&Fit>,
        node: NodeId,
        k: usize,
        unreachable: &[NodeId],
        out: &mut Vec<NodeId>,
    ) {
        let present = std::mem::take(out);
        let Some(me) = self.nodes.get(node.slot()).filter(|n| n.present()) else {
            return;
        };
        let (mut near, mut skipped) = (0, Vec::new());
        let mates = self.mates(me, node);
        if mates.is_empty() || 2 * mates.len() >= self.len() {
            let landmarks = rounded(k, TUNING.landmarks).max(MIN_LANDMARKS).min(k);
            skipped = self.landmarks(node, landmarks, unreachable, out);
            near = rounded(k, NEAR_TARGETS_RATIO).min(k - out.len());
        } else {
            let ranked = |i: &&usize| (self.rank(me.key, 0x5a, **i), **i);
            let shares_rack = |i: &&usize| me.rack != 0 && self.nodes[**i].rack == me.rack;
            let rack = mates.iter().filter(shares_rack);
            lowest(rack.map(|i| ranked(&i)), (k / 8).max(1).min(k), out);
            let rest = (k / 2).saturating_sub(out.len());
            lowest(mates.iter().map(|i| ranked(&i)), rest, out);
        }
        lowest(self.ranked(node, me.key, 0xa5), k - out.len() - near, out);
        if let Some(fit) = fit.filter(|fit| near > 0 && fit.knows(node)) {
            let lost = |target: &NodeId| {
                let unknown = self.sample(node, *target).is_none();
                skipped.contains(target) || unknown && unreachable.contains(target)
            };
            let retained = self.retained(node, near, &present, out, lost);
            out.extend(self.nearest(fit, node, near, retained, unreachable, out));
        }
    }

    /// Appends landmarks to `out` until it has `count` nodes; returns the unreachable ones it
    /// skipped.
    fn landmarks(
        &self,
        node: NodeId,
        count: usize,
        unreachable: &[NodeId],
        out: &mut Vec<NodeId>,
    ) -> Vec<NodeId> {
        let (mut ranked, mut skipped) = (Vec::new(), Vec::new());
        let all = self.ranked(node, 0, 0x1a);
        lowest(all, count + unreachable.len(), &mut ranked);
        for landmark in ranked {
            if out.len() == count {
                break;
            }
            if unreachable.contains(&landmark) {
                skipped.push(landmark);
            } else {
                out.push(landmark);
            }
        }
        skipped
    }

    fn mates(&self, me: &Node, node: NodeId) -> Vec<usize> {
        let all = self.nodes.iter().enumerate();
        let mates = all.filter(|(i, n)| me.zone != 0 && n.zone == me.zone && *i != node.slot());
        mates.map(|(i, _)| i).collect()
    }

    fn ranked(&self, node: NodeId, key: u64, scope: u64) -> impl Iterator<Item = (u64, usize)> {
        let others = (0..self.nodes.len()).filter(move |i| *i != node.slot());
        let present = others.filter(|i| self.nodes[*i].present());
        present.map(move |i| (self.rank(key, scope, i), i))
    }

    fn rank(&self, key: u64, scope: u64, i: usize) -> u64 {
        hash::pair(self.options.seed ^ scope ^ key, self.nodes[i].key)
    }

    /// Returns the near targets that stay, nearest first: from the present targets, or after a
    /// restart from the measured nodes.
    fn retained(
        &self,
        node: NodeId,
        near: usize,
        present: &[NodeId],
        out: &[NodeId],
        lost: impl Fn(&NodeId) -> bool,
    ) -> Vec<NodeId> {
        let own = self.samples[node.slot()].iter().map(|s| NodeId(s.to));
        let mut retained: Vec<NodeId> = if present.is_empty() {
            own.collect()
        } else {
            present.to_vec()
        };
        retained.retain(|target| {
            let known = self.nodes.get(target.slot()).is_some_and(Node::present);
            known && *target != node && !out.contains(target) && !lost(target)
        });
        let micros = |target: &NodeId| self.sample(node, *target).unwrap_or(f32::INFINITY);
        retained.sort_by(|a, b| micros(a).total_cmp(&micros(b)).then(a.cmp(b)));
        retained.dedup();
        retained.truncate(near);
        retained
    }

    fn nearest(
        &self,
        fit: &Fit,
        node: NodeId,
        near: usize,
        mut retained: Vec<NodeId>,
        unreachable: &[NodeId],
        out: &[NodeId],
    ) -> Vec<NodeId> {
        let missing = near - retained.len();
        let seen = retained
            .iter()
            .filter(|t| fit.measured(node, **t).is_some());
        if missing > 0 && 2 * seen.count() < retained.len() {
            return retained;
        }
        let mut candidates = self.near_candidates(fit, node, out, &retained);
        candidates.sort_unstable_by(|a, b| a.rank.total_cmp(&b.rank).then(a.node.cmp(&b.node)));
        let mut reached = candidates
            .iter()
            .filter(|candidate| !unreachable.contains(&candidate.node));
        if missing > 0 {
            let step = near.div_ceil(NEAR_TARGETS_STEPS).min(missing);
            retained.extend(reached.take(step).map(|candidate| candidate.node));
        } else if let (Some(last), Some(candidate)) = (retained.last_mut(), reached.next())
            && let Some(farthest) = self.sample(node, *last)
            && candidate.micros < MAX_REPLACEMENT_RATIO * farthest
        {
            *last = candidate.node;
        }
        retained
    }

    /// Returns the candidates for near targets: nodes that the fit knows, in pairs that neither
    /// side has measured. Only one node of a pair has the other as a candidate.
    fn near_candidates(
        &self,
        fit: &Fit,
        node: NodeId,
        out: &[NodeId],
        retained: &[NodeId],
    ) -> Vec<NearCandidate> {
        let key = self.nodes[node.slot()].key;
        let mine = |other: u64| {
            let (low, high) = (key.min(other), key.max(other));
            (hash::pair(low, high) & 1 == 0) == (key < other)
        };
        let predictions = fit.predictions(node.slot());
        let both = predictions.zip(fit.unlikeness(node));
        let candidates = (0u32..)
            .zip(both)
            .map(|(i, (micros, unlike))| NearCandidate {
                rank: micros * (TUNING.target_unlikeness * unlike).exp(),
                node: NodeId(i),
                micros,
            });
        let open = candidates.filter(|candidate| {
            let other = candidate.node;
            let known = self.nodes.get(other.slot()).filter(|n| n.present());
            known.is_some_and(|n| mine(n.key))
                && other != node
                && fit.knows(other)
                && fit.measured(node, other).is_none()
                && self.sample(other, node).is_none()
                && !out.contains(&other)
                && !retained.contains(&other)
        });
        open.collect()
    }
}

fn rounded(k: usize, part: f32) -> usize {
    ((k as f32 * part).round() as usize).max(1).min(k)
}

/// Appends to `out` the `count` nodes of lowest rank that are not in it yet, in order of rank.
fn lowest(ranked: impl Iterator<Item = (u64, usize)>, count: usize, out: &mut Vec<NodeId>) {
    if count == 0 {
        return;
    }
    let mut ranked: Vec<(u64, u32)> = ranked
        .map(|(rank, i)| (rank, i as u32))
        .filter(|(_, i)| !out.contains(&NodeId(*i)))
        .collect();
    if count < ranked.len() {
        ranked.select_nth_unstable(count);
        ranked.truncate(count);
    }
    ranked.sort_unstable();
    out.extend(ranked.into_iter().map(|(_, i)| NodeId(i)));
}
