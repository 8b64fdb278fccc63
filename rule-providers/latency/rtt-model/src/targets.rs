//! The choice of a node's targets, the nodes that it should measure. Half of a labelled node's
//! targets are in its rack or zone, the rest are random.
//!
//! A node that is alone in its zone, has no zone, or whose zone holds half of all nodes, has other
//! targets. An eighth (at least two) are landmarks, which are the same for all nodes that reach
//! them. Half are near, by predicted time and by how alike both nodes' times are to the nodes that
//! both measured. The rest are random. Near targets are picked a sixth at a time, each time from
//! a newer fit.
//!
//! Random targets are ranked by a seeded hash of both names: replicas agree, and a new or removed
//! node changes few targets.

use crate::{Fit, Model, NodeId, hash, network::Node, tuning};

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
        let Some(me) = self.present(node) else {
            return;
        };
        let is_mate = |other: &Node| {
            let zone = me.location.zone;
            zone != 0 && zone == other.location.zone && other.key != me.key
        };
        let mates = self.nodes.iter().filter(|other| is_mate(other)).count();
        let (mut near, mut skipped) = (0, Vec::new());
        if mates == 0 || 2 * mates >= self.len() {
            let count = ((k as f32 * tuning::LANDMARKS).round() as usize)
                .max(2)
                .min(k);
            let mut landmarks = Vec::new();
            let all = self.ranked(0x1a, |other| other.key != me.key);
            lowest(all, count + unreachable.len(), &mut landmarks);
            for landmark in landmarks {
                if out.len() == count {
                    break;
                } else if unreachable.contains(&landmark) {
                    skipped.push(landmark);
                } else {
                    out.push(landmark);
                }
            }
            near = k.div_ceil(2).min(k - out.len());
        } else {
            let own = 0x5a ^ me.key;
            let shares_rack = |other: &Node| me.location.shares_rack(other.location);
            let rack = self.ranked(own, |other| is_mate(other) && shares_rack(other));
            lowest(rack, (k / 8).max(1).min(k), out);
            let rest = (k / 2).saturating_sub(out.len());
            lowest(self.ranked(own, is_mate), rest, out);
        }
        let random = self.ranked(0xa5 ^ me.key, |other| other.key != me.key);
        lowest(random, k - out.len() - near, out);
        if let Some(fit) = fit.filter(|fit| near > 0 && fit.knows(node)) {
            // After a restart the measured nodes are the present targets.
            let mut retained = present;
            if retained.is_empty() {
                retained.extend(self.samples[node.slot()].iter().map(|s| NodeId(s.to)));
            }
            retained.retain(|target| {
                let unknown = self.sample(node, *target).is_none();
                let lost = skipped.contains(target) || unknown && unreachable.contains(target);
                let known = *target != node && self.may_be_target(*target);
                known && !lost && !out.contains(target)
            });
            let micros = |target: &NodeId| self.sample(node, *target).unwrap_or(f32::INFINITY);
            retained.sort_by(|a, b| micros(a).total_cmp(&micros(b)).then(a.cmp(b)));
            retained.dedup();
            retained.truncate(near);
            let first = out.len();
            out.extend(retained);
            self.add_near(fit, node, near, first, unreachable, out);
        }
    }

    fn may_be_target(&self, node: NodeId) -> bool {
        self.present(node).is_some_and(|node| !node.is_excluded)
    }

    /// Returns the nodes that `which` holds for, each with its rank, a seeded hash.
    fn ranked(
        &self,
        scope: u64,
        which: impl Fn(&Node) -> bool,
    ) -> impl Iterator<Item = (u64, NodeId)> {
        let nodes = (0..).map(NodeId).zip(&self.nodes);
        let some = nodes.filter(move |(_, n)| n.present() && !n.is_excluded && which(n));
        some.map(move |(id, node)| (hash::pair(self.options.seed ^ scope, node.key), id))
    }

    /// Adds some near targets to those that start at `first`. If there are `near` of them, a node of
    /// at most half the last one's time replaces that.
    fn add_near(
        &self,
        fit: &Fit,
        node: NodeId,
        near: usize,
        first: usize,
        unreachable: &[NodeId],
        out: &mut Vec<NodeId>,
    ) {
        let retained = &out[first..];
        let missing = near - retained.len();
        let seen = retained
            .iter()
            .filter(|t| fit.measured(node, **t).is_some());
        if missing > 0 && 2 * seen.count() < retained.len() {
            return;
        }
        // Candidates are nodes that the fit knows, in pairs that neither side has measured; only one
        // node of a pair has the other as a candidate.
        let key = self.nodes[node.slot()].key;
        let mine = |other: u64| {
            let (low, high) = (key.min(other), key.max(other));
            (hash::pair(low, high) & 1 == 0) == (key < other)
        };
        let all = (0..).map(NodeId).zip(fit.nearness(node.slot()));
        let open = all.filter(|(other, _)| {
            self.present(*other)
                .is_some_and(|n| !n.is_excluded && mine(n.key))
                && *other != node
                && fit.knows(*other)
                && fit.measured(node, *other).is_none()
                && self.sample(*other, node).is_none()
                && !out.contains(other)
        });
        let ranked = open.map(|(other, (micros, unlike))| {
            let rank = micros * (tuning::TARGET_UNLIKENESS * unlike).exp();
            (rank, other, micros)
        });
        let mut candidates: Vec<_> = ranked.collect();
        candidates.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let reached = |candidate: &&(f32, NodeId, f32)| !unreachable.contains(&candidate.1);
        let mut reached = candidates.iter().filter(reached);
        if missing > 0 {
            let step = near.div_ceil(6).min(missing);
            out.extend(reached.take(step).map(|(_, candidate, _)| *candidate));
        } else if let (Some(last), Some((_, candidate, micros))) = (out.last_mut(), reached.next())
            && let Some(farthest) = self.sample(node, *last)
            && 2.0 * *micros < farthest
        {
            *last = *candidate;
        }
    }
}

/// Appends to `out` the `count` nodes of lowest rank that are not in it yet, in order of rank.
fn lowest(ranked: impl Iterator<Item = (u64, NodeId)>, count: usize, out: &mut Vec<NodeId>) {
    let mut ranked: Vec<_> = ranked.filter(|(_, node)| !out.contains(node)).collect();
    if count < ranked.len() {
        ranked.select_nth_unstable(count);
        ranked.truncate(count);
    }
    ranked.sort_unstable();
    out.extend(ranked.into_iter().map(|(_, node)| node));
}
