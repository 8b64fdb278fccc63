//! Simulates the utilization of a cluster with departures.
//!
//! The seed's arrivals come `factor` times, after the first time in another order, evenly over a
//! time T. A pod stays as long as in the trace, but at most a quarter of T: otherwise a few long
//! pods would hold all cards. T makes the offered load equal the capacity: the sum of GPU x stay
//! over all arrivals is all cards x T. A pod that does not fit on arrival is dropped. The figures
//! are those of the second half, which is the steady state.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use serde::Serialize;

use crate::{
    arrivals::Arrivals,
    contender::Contender,
    curve::round2,
    files::Error,
    run::{Cluster, PlacedPod},
    ties::{TieBreaker, Ties},
    trace::{Trace, Workload},
};

/// The smallest factor that `tautline simulate --churn` accepts.
pub const LEAST_FACTOR: u32 = 4;
/// The longest stay of a pod, as a fraction of the time T.
const MAX_STAY_RATIO: f64 = 0.25;
/// The workload whose lifetimes are used for workloads without times.
const DONOR_WORKLOAD: &str = "default";

#[derive(Clone, Debug)]
pub(crate) struct ChurnPlan {
    /// Index of each arriving pod, and its stay in seconds.
    pub stays: Vec<(u32, f64)>,
    /// Time between arrivals, in seconds.
    gap: f64,
}

/// The figures of a run with departures: means over the arrivals of the second half.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// GPU that all pods would hold without drops, in percent of all GPU.
    pub churn_offered: f64,
    /// Used GPU in percent of the cluster's GPU.
    pub churn_allocation: f64,
    /// Pods that fit on arrival, in percent of all pods.
    pub churn_placed: f64,
    /// Percentage as in [`linked_pods`](crate::Figures::linked_pods), but over the arrivals of both
    /// halves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub churn_linked_pods: Option<f64>,
}

impl ChurnPlan {
    /// Draws the stays of the arriving pods. Fails if a pod of the workload has no times and the
    /// trace has no workload with times, or if the arrivals offer less load than the capacity.
    pub fn draw(
        trace: &Trace,
        workload: &Workload,
        order: &Arrivals,
        factor: u32,
    ) -> Result<Self, Error> {
        let mut random = fastrand::Rng::with_seed(order.seed);
        let lent = lent_lifetimes(trace, workload)?;
        let (mut stays, mut pass) = (Vec::new(), order.pods.clone());
        for _ in 0..factor {
            for pod in &pass {
                let own = workload.pods[*pod as usize].lifetime;
                let seconds = own.unwrap_or_else(|| {
                    // Of pods with the same number of cards or the next smaller number.
                    let list = lent.range(..=cards(workload, *pod)).next_back();
                    let list = list.or_else(|| lent.first_key_value());
                    let lifetime = list.and_then(|(_, list)| random.choice(list));
                    lifetime.copied().unwrap_or(1)
                });
                stays.push((*pod, seconds.max(1) as f64));
            }
            random.shuffle(&mut pass);
        }
        let milli = |pod: u32| workload.shape_of(pod).milli() as f64;
        let capacity = trace.cards() as f64 * 1000.0;
        let offered = |time: f64| {
            let load = |(pod, stay): &(u32, f64)| milli(*pod) * stay.min(time * MAX_STAY_RATIO);
            stays.iter().map(load).sum::<f64>() / time / capacity
        };
        let (mut less, mut more) = (1.0, 1e15);
        if offered(less) < 1.0 {
            return Err(Error::Invalid(format!(
                "workload {} offers less than the capacity with {factor} times its arrivals; \
                 write a larger --churn",
                workload.name
            )));
        }
        while more / less > 1.000_001 {
            let middle = f64::sqrt(more * less);
            if offered(middle) > 1.0 {
                less = middle;
            } else {
                more = middle;
            }
        }
        for (_, stay) in &mut stays {
            *stay = stay.min(less * MAX_STAY_RATIO);
        }
        Ok(Self {
            gap: less / stays.len() as f64,
            stays,
        })
    }

    pub fn run(
        &self,
        trace: &Trace,
        workload: &Workload,
        order: &Arrivals,
        policy: Contender,
        ties: Ties,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Figures {
        let mut cluster = Cluster::new(trace, workload, order, policy);
        let mut chooser = TieBreaker::new(ties, order.seed);
        let mut here: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut placed_pods: Vec<Option<PlacedPod>> = Vec::with_capacity(self.stays.len());
        let (mut offered_milli, mut arrivals, mut placed_count) = (0, 0_u32, 0_u32);
        let (mut offered, mut allocation) = (0.0, 0.0);
        for (i, (pod, stay)) in self.stays.iter().enumerate() {
            let now = i as f64 * self.gap;
            while let Some(Reverse((end, gone))) = here.peek().copied()
                && end <= ticks(now)
            {
                here.pop();
                let shape = workload.shape_of(self.stays[gone].0);
                offered_milli -= shape.milli();
                if let Some(leaving) = placed_pods[gone].take() {
                    cluster.remove(shape, &leaving);
                }
            }
            let shape = workload.shape_of(*pod);
            let placed = cluster.place(shape, &mut chooser);
            offered_milli += shape.milli();
            here.push(Reverse((ticks(now + stay), i)));
            if i >= self.stays.len() / 2 {
                arrivals += 1;
                placed_count += u32::from(placed.is_some());
                offered += offered_milli as f64 / trace.cards() as f64 / 10.0;
                allocation += cluster.allocation();
            }
            placed_pods.push(placed);
            progress(1);
        }
        let mean = |sum: f64| round2(sum / f64::from(arrivals.max(1)));
        Figures {
            churn_offered: mean(offered),
            churn_allocation: mean(allocation),
            churn_placed: mean(100.0 * f64::from(placed_count)),
            churn_linked_pods: cluster.linked(),
        }
    }
}

fn ticks(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

fn cards(workload: &Workload, pod: u32) -> u16 {
    let shape = workload.shape_of(pod);
    shape.whole + u16::from(shape.share > 0)
}

/// Returns the lifetimes, in seconds, for a workload that lacks some, by number of cards.
fn lent_lifetimes(trace: &Trace, workload: &Workload) -> Result<BTreeMap<u16, Vec<u64>>, Error> {
    let lacks = |w: &Workload| w.pods.iter().any(|p| p.lifetime.is_none());
    let mut by_cards = BTreeMap::<u16, Vec<u64>>::new();
    if !lacks(workload) {
        return Ok(by_cards);
    }
    let donor = trace.workload(DONOR_WORKLOAD).ok().filter(|w| !lacks(w));
    let donor = donor.ok_or_else(|| {
        Error::Invalid(format!(
            "workload {} has pods without times, and {} has no workload {DONOR_WORKLOAD} with times \
             to lend; write creation_time and deletion_time of every pod",
            workload.name,
            trace.dir.display()
        ))
    })?;
    for (i, pod) in donor.pods.iter().enumerate() {
        let list = by_cards.entry(cards(&donor, i as u32)).or_default();
        list.extend(pod.lifetime);
    }
    Ok(by_cards)
}
