use std::collections::HashSet;

use tautline_core::model::Pod;
use tautline_gpu_placement::{CostCache, RequestDistribution, Shape};

use crate::gpu_request::GpuRequest;

/// The number of new pods between two comparisons of the distribution with the planned one.
const PODS_PER_COMPARISON: u32 = 64;
/// The distance from the planned distribution, between 0 and 1, above which a new plan is made. A
/// plan recomputes the costs of all nodes.
const REPLAN_DISTANCE: f64 = 0.02;
/// The greatest number of counted pods to remember; only a rule states the requests of these pods.
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

    /// Returns whether the pod still counts when the watch first shows it.
    pub(crate) fn counts(&self, pod: &Pod) -> bool {
        !self.fixed && !self.counted_pods.contains(&pod.uid)
    }

    pub(crate) fn count_shapes(&mut self, costs: &mut CostCache, shapes: &[Shape]) {
        if self.fixed {
            return;
        }
        self.distribution.observe_unordered(shapes);
        let count = u32::try_from(shapes.len()).unwrap_or(u32::MAX);
        self.pending = self.pending.saturating_add(count);
        self.plan(costs);
    }

    /// Returns whether a pod's request still counts. Before the first plan every request counts;
    /// afterwards only requests by a rule count, once for each pod.
    pub(crate) fn counts_request(
        &self,
        costs: &CostCache,
        uid: &str,
        request: &GpuRequest,
    ) -> bool {
        let is_new = || !uid.is_empty() && !self.counted_pods.contains(uid);
        !self.fixed && (costs.classes().is_empty() || request.is_by_rule() && is_new())
    }

    pub(crate) fn count_request(&mut self, costs: &mut CostCache, uid: &str, shape: &Shape) {
        if self.counted_pods.len() >= MAX_COUNTED_PODS {
            self.counted_pods.clear();
        }
        self.counted_pods.insert(uid.into());
        self.count_shapes(costs, std::slice::from_ref(shape));
    }

    pub(crate) fn plan_now(&mut self, costs: &mut CostCache) {
        if self.pending > 0 {
            self.pending = PODS_PER_COMPARISON;
            self.plan(costs);
        }
    }

    pub(crate) fn class_count(&self) -> usize {
        self.distribution.len()
    }

    fn plan(&mut self, costs: &mut CostCache) {
        let planned = !costs.classes().is_empty();
        if self.pending == 0 || (planned && self.pending < PODS_PER_COMPARISON) {
            return;
        }
        self.pending = 0;
        let classes = self.distribution.classes();
        if RequestDistribution::distance(costs.classes(), &classes) > REPLAN_DISTANCE {
            costs.plan_for(classes);
        }
    }
}
