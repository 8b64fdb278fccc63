//! The distribution of requests, learned from pods and planned for in the cost cache.

use std::collections::HashSet;

use tautline_core::model::Pod;
use tautline_gpu_placement::{CARD, CostCache, Names, RequestDistribution, Shape};

use crate::gpu_request::{Amount, GpuRequest};

/// The distribution is compared again once so many more pods have come ...
const COMPARE_EVERY: u32 = 64;
/// ... and planned for if it differs by so much; each plan costs all nodes' work.
const DRIFT: f64 = 0.02;
/// Pods that were counted when they asked, because only a rule states their request.
const MAX_COUNTED_PODS: usize = 16_384;

/// Learns from pods; idle if the distribution is given.
#[derive(Debug, Default)]
pub(crate) struct RequestLearner {
    distribution: RequestDistribution,
    /// The distribution is given, and nothing is learned.
    fixed: bool,
    /// Pods since the last comparison.
    pending: u32,
    counted_pods: HashSet<Box<str>>,
}

impl RequestLearner {
    pub(crate) fn fixed() -> Self {
        Self {
            fixed: true,
            ..Self::default()
        }
    }

    /// Counts new pods, in no order. `shape` gives what a pod requests by itself.
    pub(crate) fn count_pods<'a>(
        &mut self,
        costs: &mut CostCache,
        pods: impl Iterator<Item = &'a Pod>,
        shape: impl Fn(&CostCache, &Pod) -> Option<Shape>,
    ) {
        if self.fixed {
            return;
        }
        let pods = pods.filter(|p| !self.counted_pods.contains(&p.uid));
        let shapes: Vec<Shape> = pods.filter_map(|p| shape(costs, p)).collect();
        self.distribution.observe_unordered(&shapes);
        let count = u32::try_from(shapes.len()).unwrap_or(u32::MAX);
        self.pending = self.pending.saturating_add(count);
        self.plan(costs);
    }

    /// Counts a pod that asks, once, if only the rule states its request. While no request is
    /// known, every request counts. Returns the counted shape.
    pub(crate) fn count_request(
        &mut self,
        names: &Names,
        costs: &mut CostCache,
        uid: &str,
        request: &GpuRequest,
    ) -> Option<Shape> {
        let first = costs.classes().is_empty();
        if self.fixed || !first && (!request.by_rule || uid.is_empty()) {
            return None;
        }
        let milli = match request.amount {
            Amount::Cards(cards) => cards.saturating_mul(i64::from(CARD)),
            Amount::Share(milli) => milli,
            _ => return None,
        };
        let mode = request.likely_mode(names, costs.kinds().iter().map(|k| k.mode));
        let shape = request.shape(mode, mode.round_up(milli));
        if self.counted_pods.len() >= MAX_COUNTED_PODS {
            self.counted_pods.clear();
        }
        if !self.counted_pods.insert(uid.into()) && !first {
            return None;
        }
        self.distribution.observe(&shape);
        self.pending += 1;
        self.plan(costs);
        Some(shape)
    }

    /// Plans for all pods counted so far, however few.
    pub(crate) fn plan_now(&mut self, costs: &mut CostCache) {
        if self.pending > 0 {
            self.pending = COMPARE_EVERY;
            self.plan(costs);
        }
    }

    /// The number of classes of requests, rare ones included.
    pub(crate) fn class_count(&self) -> usize {
        self.distribution.len()
    }

    fn plan(&mut self, costs: &mut CostCache) {
        let planned = !costs.classes().is_empty();
        if self.pending == 0 || (planned && self.pending < COMPARE_EVERY) {
            return;
        }
        self.pending = 0;
        let classes = self.distribution.classes();
        if RequestDistribution::distance(costs.classes(), &classes) > DRIFT {
            costs.plan_for(classes);
        }
    }
}
