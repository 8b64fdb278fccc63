use std::collections::HashSet;

use tautline_core::model::Pod;
use tautline_gpu_placement::{CARD, CostCache, Names, RequestDistribution, Shape};

use crate::gpu_request::{Amount, GpuRequest};

/// New pods between two comparisons of the distribution.
const COMPARE_EVERY: u32 = 64;
/// The distance that triggers a plan, which costs all nodes' work.
const DRIFT: f64 = 0.02;
/// Pods whose request only a rule states.
const MAX_COUNTED_PODS: usize = 16_384;

#[derive(Debug, Default)]
pub(crate) struct RequestLearner {
    distribution: RequestDistribution,
    fixed: bool,
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

    /// Counts a pod once, or always without a known request. Returns the counted shape.
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
            Amount::OfAgent(own) if own.milli > 0 => own.milli,
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

    pub(crate) fn plan_now(&mut self, costs: &mut CostCache) {
        if self.pending > 0 {
            self.pending = COMPARE_EVERY;
            self.plan(costs);
        }
    }

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
