//! Pods that leave again: how full a cluster stays when they come and go.
//!
//! The arrivals of the seed come `factor` times over, each time but the first in
//! another order, evenly over a time T. A pod stays as long as the trace says, but
//! no longer than a quarter of T: else the few that stay for months would hold all
//! cards, and nothing would come and go. T is such that the load offered is the
//! capacity: the sum of GPU x stay over all arrivals is all cards x T. A pod that
//! does not fit when it comes is dropped. Figures are of the second half, when as
//! many leave as come.

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

/// Fewer arrivals could not offer the capacity.
pub const LEAST_FACTOR: u32 = 4;
/// No pod stays longer than this part of the time.
const LONGEST_STAY: f64 = 0.25;
/// The workload whose lifetimes are drawn for pods without one.
const DONOR_WORKLOAD: &str = "default";

/// Arrivals with their stays.
#[derive(Clone, Debug)]
pub struct ChurnPlan {
    /// Pod and seconds.
    stays: Vec<(u32, f64)>,
    /// Seconds between two arrivals.
    gap: f64,
    seed: u64,
}

/// Means over the arrivals of the second half.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// GPU that all pods would hold if none were dropped, in percent of all GPU.
    pub churn_offered: f64,
    /// Used GPU in percent of all.
    pub churn_allocation: f64,
    /// Pods that were placed when they came, in percent of pods.
    pub churn_placed: f64,
}

impl ChurnPlan {
    /// # Errors
    /// The workload has no times and the trace no workload to lend them.
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
            let held = |(pod, stay): &(u32, f64)| milli(*pod) * stay.min(time * LONGEST_STAY);
            stays.iter().map(held).sum::<f64>() / time / capacity
        };
        // The longer the time, the less is offered.
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
            *stay = stay.min(less * LONGEST_STAY);
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

    /// Runs it; `tell` hears of progress, in arrivals.
    pub fn run(
        &self,
        trace: &Trace,
        workload: &Workload,
        order: &Arrivals,
        policy: PolicyName,
        ties: Ties,
        tell: &(dyn Fn(u64) + Sync),
    ) -> Figures {
        let mut cluster = Cluster::new(trace, workload, order, policy);
        let mut chooser = TieBreaker::new(ties, self.seed);
        let mut here: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut held: Vec<Option<PlacedPod>> = Vec::with_capacity(self.stays.len());
        let (mut offered_milli, mut counted) = (0, Sums::default());
        for (i, (pod, stay)) in self.stays.iter().enumerate() {
            let now = i as f64 * self.gap;
            while let Some(Reverse((end, gone))) = here.peek().copied()
                && end <= ticks(now)
            {
                here.pop();
                let shape = workload.shape_of(self.stays[gone].0);
                offered_milli -= shape.milli();
                if let Some(held) = held[gone].take() {
                    cluster.remove(shape, &held);
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
            held.push(placed);
            if i % PROGRESS_EVERY == PROGRESS_EVERY - 1 {
                tell(PROGRESS_EVERY as u64);
            }
        }
        tell((self.stays.len() % PROGRESS_EVERY) as u64);
        counted.means()
    }
}

/// Millionths of a second, to be compared.
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
        }
    }
}

/// Lifetimes by the number of cards asked for.
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

    /// The lifetime of a pod that requests as many cards, or the next fewer.
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
