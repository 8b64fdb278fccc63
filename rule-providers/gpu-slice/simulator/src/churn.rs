//! Simulates the utilization of a cluster with departures.
//!
//! The seed's arrivals come `factor` times, after the first time in another order, evenly over a
//! time T. A pod stays as long as in the trace, but at most a quarter of T: otherwise a few long
//! pods would hold all cards. T makes the offered load equal the capacity: the sum of GPU x stay
//! over all arrivals is all cards x T. A pod that does not fit on arrival is dropped. The figures
//! are those of the second half, which is the steady state.

use std::{cmp::Reverse, collections::BinaryHeap};

use serde::Serialize;
use tautline_gpu_placement::policy::PolicyName;

use crate::{
    arrivals::Arrivals,
    error::Error,
    run::{Cluster, PROGRESS_EVERY, PlacedPod},
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
    stays: Vec<(u32, f64)>,
    /// Time between arrivals, in seconds.
    gap: f64,
    seed: u64,
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
        let lenders = LifetimeDonors::from_trace(trace, workload)?;
        let (mut stays, mut pass) = (Vec::new(), order.pods.clone());
        for _ in 0..factor {
            for pod in &pass {
                let own = workload.pods[*pod as usize].lifetime;
                let seconds = own.unwrap_or_else(|| lenders.draw(workload, *pod, &mut random));
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
            *(if offered(middle) > 1.0 {
                &mut less
            } else {
                &mut more
            }) = middle;
        }
        for (_, stay) in &mut stays {
            *stay = stay.min(less * MAX_STAY_RATIO);
        }
        Ok(Self {
            gap: less / stays.len() as f64,
            stays,
            seed: order.seed,
        })
    }

    pub fn arrivals(&self) -> usize {
        self.stays.len()
    }

    pub fn run(
        &self,
        trace: &Trace,
        workload: &Workload,
        order: &Arrivals,
        policy: PolicyName,
        ties: Ties,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Figures {
        let mut cluster = Cluster::new(trace, workload, order, policy);
        let mut chooser = TieBreaker::new(ties, self.seed);
        let mut here: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut placed_pods: Vec<Option<PlacedPod>> = Vec::with_capacity(self.stays.len());
        let (mut offered_milli, mut counted) = (0, Sums::default());
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
                counted.arrivals += 1;
                counted.placed += u32::from(placed.is_some());
                counted.offered += offered_milli as f64 / trace.cards() as f64 / 10.0;
                counted.allocation += cluster.allocation();
            }
            placed_pods.push(placed);
            if i % PROGRESS_EVERY == PROGRESS_EVERY - 1 {
                progress(PROGRESS_EVERY as u64);
            }
        }
        progress((self.stays.len() % PROGRESS_EVERY) as u64);
        Figures {
            churn_linked_pods: cluster.linked(),
            ..counted.means()
        }
    }
}

fn ticks(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

#[derive(Default)]
struct Sums {
    arrivals: u32,
    placed: u32,
    offered: f64,
    allocation: f64,
}

impl Sums {
    fn means(&self) -> Figures {
        let mean = |sum: f64| crate::curve::round2(sum / f64::from(self.arrivals.max(1)));
        Figures {
            churn_offered: mean(self.offered),
            churn_allocation: mean(self.allocation),
            churn_placed: mean(100.0 * f64::from(self.placed)),
            churn_linked_pods: None,
        }
    }
}

struct LifetimeDonors(Vec<(u16, Vec<u64>)>);

fn cards(workload: &Workload, pod: u32) -> u16 {
    let shape = workload.shape_of(pod);
    shape.whole + u16::from(shape.share > 0)
}

impl LifetimeDonors {
    fn from_trace(trace: &Trace, workload: &Workload) -> Result<Self, Error> {
        let lacks = |w: &Workload| w.pods.iter().any(|p| p.lifetime.is_none());
        if !lacks(workload) {
            return Ok(Self(Vec::new()));
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
        let mut by_cards = std::collections::BTreeMap::<u16, Vec<u64>>::new();
        for (i, pod) in donor.pods.iter().enumerate() {
            let list = by_cards.entry(cards(&donor, i as u32)).or_default();
            list.extend(pod.lifetime);
        }
        Ok(Self(by_cards.into_iter().collect()))
    }

    /// Draws the lifetime, in seconds, of a pod with the same number of cards or the next smaller
    /// number.
    fn draw(&self, workload: &Workload, pod: u32, random: &mut fastrand::Rng) -> u64 {
        let wanted = cards(workload, pod);
        let list = self.0.iter().rev().find(|(cards, _)| *cards <= wanted);
        let list = list.or(self.0.first()).map(|(_, list)| list.as_slice());
        random
            .choice(list.unwrap_or_default())
            .copied()
            .unwrap_or(1)
    }
}
