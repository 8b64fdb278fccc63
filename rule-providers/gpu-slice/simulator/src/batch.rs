//! Simulates every combination of workload, seed and placement policy on a trace, in several
//! threads, and collects the figures of each run.

use std::{
    num::NonZeroUsize,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use serde::Serialize;

use crate::{
    arrivals::Arrivals,
    churn,
    contender::Contender,
    curve::Curve,
    files::Error,
    run::{Cluster, RunRecord},
    ties::{TieBreaker, Ties},
    trace::{Trace, Workload},
};

/// A trace's runs: one for each workload, seed and policy.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The recorded cluster.
    pub trace: Trace,
    /// The workloads with their seeds.
    pub workloads: Vec<(Workload, Vec<SeedRun>)>,
    /// The policies to compare.
    pub policies: Vec<Contender>,
    /// The choice between equally good nodes.
    pub ties: Ties,
}

/// The arrivals that one seed determines.
#[derive(Clone, Debug)]
pub struct SeedRun {
    /// Arrivals of pods that never leave.
    pub arrivals: Arrivals,
    pub(crate) churn: Option<churn::ChurnPlan>,
}

/// The figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The workload's name.
    pub workload: String,
    /// The number of the order of arrivals.
    pub seed: u64,
    /// The policy's name.
    pub policy: &'static str,
    /// Used GPU in percent at an arrived load of 100 %; absent if the load stayed below it.
    pub allocation_at_100: Option<f64>,
    /// Used GPU in percent at an arrived load of 130 %; absent if the load stayed below it.
    pub allocation_at_130: Option<f64>,
    /// Idle GPU in percent that the expected next pod cannot use, at an arrived load of 100 %.
    pub fragmentation_at_100: Option<f64>,
    /// Number of pods that fit nowhere.
    pub dropped: usize,
    /// Pods whose whole cards are in as few NVLink domains as possible, in percent of the pods with
    /// several whole cards on nodes with NVLink; absent without such pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linked_pods: Option<f64>,
    /// Duration of the run without churn, rounded to milliseconds.
    pub seconds: f64,
    /// Figures of a second run, with pods that leave.
    #[serde(flatten)]
    pub churn: Option<churn::Figures>,
}

/// A run's figures and curves.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The policy that placed the pods.
    pub policy: Contender,
    /// Values of the curves at some loads, and counts.
    pub figures: Figures,
    /// Used GPU in percent of the cluster's GPU.
    pub allocation: Curve,
    /// Idle GPU that the expected next pod cannot use, in percent of the cluster's GPU.
    pub fragmentation: Curve,
}

impl Experiment {
    /// Reads pods and arrivals. `churn` is the number of times that the arrivals come in the second
    /// runs, whose pods leave; `None`: no second runs.
    pub fn prepare(
        trace: Trace,
        workloads: &[String],
        seeds: &[u64],
        policies: Vec<Contender>,
        ties: Ties,
        churn: Option<u32>,
    ) -> Result<Self, Error> {
        let read = |name: &String| {
            let workload = trace.workload(name)?;
            let of = |seed: &u64| {
                let arrivals = Arrivals::read_or_draw(&trace, &workload, *seed)?;
                let plan = |factor| churn::ChurnPlan::draw(&trace, &workload, &arrivals, factor);
                Ok(SeedRun {
                    churn: churn.map(plan).transpose()?,
                    arrivals,
                })
            };
            let orders = seeds.iter().map(of).collect::<Result<_, Error>>()?;
            Ok((workload, orders))
        };
        Ok(Self {
            workloads: workloads.iter().map(read).collect::<Result<_, Error>>()?,
            trace,
            policies,
            ties,
        })
    }

    /// The number of arrivals in all runs.
    pub fn arrivals(&self) -> u64 {
        let all = self.workloads.iter().flat_map(|(_, orders)| orders);
        let leaving = |o: &SeedRun| o.churn.as_ref().map_or(0, |plan| plan.stays.len());
        let one: usize = all.map(|o| o.arrivals.pods.len() + leaving(o)).sum();
        (one * self.policies.len()) as u64
    }

    /// The workloads and seeds whose arrivals were drawn at random, because the trace does not have
    /// them.
    pub fn drawn(&self) -> Vec<(&str, u64)> {
        let all = self.workloads.iter().flat_map(|(workload, orders)| {
            let drawn = orders.iter().filter(|o| o.arrivals.drawn);
            drawn.map(|o| (workload.name.as_str(), o.arrivals.seed))
        });
        all.collect()
    }

    /// Runs the experiment on `jobs` threads. The results are in the order of workloads, seeds and
    /// policies. `progress` receives numbers of newly simulated arrivals.
    pub fn run(&self, jobs: NonZeroUsize, progress: &(dyn Fn(u64) + Sync)) -> Vec<RunResult> {
        let mut runs = Vec::new();
        for (workload, orders) in &self.workloads {
            for order in orders {
                runs.extend(self.policies.iter().map(|p| (workload, order, *p)));
            }
        }
        let next = AtomicUsize::new(0);
        let results: Vec<OnceLock<RunResult>> = runs.iter().map(|_| OnceLock::new()).collect();
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some((workload, order, policy)) = runs.get(number) else {
                    return;
                };
                results[number].get_or_init(|| self.one(workload, order, *policy, progress));
            }
        };
        thread::scope(|scope| {
            for _ in 0..jobs.get().min(runs.len()) {
                scope.spawn(work);
            }
        });
        let results = results.into_iter();
        results.filter_map(OnceLock::into_inner).collect()
    }

    fn one(
        &self,
        workload: &Workload,
        order: &SeedRun,
        policy: Contender,
        progress: &(dyn Fn(u64) + Sync),
    ) -> RunResult {
        let (trace, arrivals) = (&self.trace, &order.arrivals);
        let start = Instant::now();
        let mut cluster = Cluster::new(trace, workload, arrivals, policy);
        let mut chooser = TieBreaker::new(self.ties, arrivals.seed);
        let mut record = RunRecord::default();
        for pod in &arrivals.pods {
            let shape = workload.shape_of(*pod);
            let placed = cluster.place(shape, &mut chooser).is_some();
            record.arrival(shape, placed, &cluster);
            progress(1);
        }
        record.linked = cluster.linked();
        let seconds = start.elapsed().as_secs_f64();
        let mut outcome =
            RunResult::from_record(trace, workload, arrivals.seed, policy, &record, seconds);
        if let Some(plan) = &order.churn {
            let figures = plan.run(trace, workload, arrivals, policy, self.ties, progress);
            outcome.figures.churn = Some(figures);
        }
        outcome
    }
}

impl RunResult {
    /// Creates the result of a run, without figures of churn. `seconds` is the duration of the run.
    pub fn from_record(
        trace: &Trace,
        workload: &Workload,
        seed: u64,
        policy: Contender,
        record: &RunRecord,
        seconds: f64,
    ) -> Self {
        let (allocation, fragmentation) = record.curves(trace.cards());
        Self {
            policy,
            figures: Figures {
                workload: workload.name.clone(),
                seed,
                policy: policy.as_str(),
                allocation_at_100: allocation[100],
                allocation_at_130: allocation[130],
                fragmentation_at_100: fragmentation[100],
                dropped: record.dropped,
                linked_pods: record.linked,
                seconds: (seconds * 1000.0).round() / 1000.0,
                churn: None,
            },
            allocation,
            fragmentation,
        }
    }
}
