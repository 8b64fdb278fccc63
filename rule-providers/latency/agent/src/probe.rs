//! Runs probes, in which the provider requests samples within a deadline.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tautline_proto::latency::{Probe, Probed};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant as Tick, sleep_until, timeout_at},
};

use crate::{
    limit::Bucket,
    measure::{ProbeContext, Shared},
    pairs,
    targets::{self, Target},
};

/// The greatest number of targets of one probe.
const MAX_TARGETS: usize = 1_024;
/// The greatest number of samples of one target.
const MAX_SAMPLES: u32 = 5;
/// The longest time of one probe.
const MAX_DEADLINE: Duration = Duration::from_secs(10);
/// The minimum time between two samples of one target.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(2);
/// The number of requests per millisecond. A round of requests to 1,024 targets takes 32 ms.
const REQUESTS_PER_MILLISECOND: usize = 32;
/// The greatest number of probes that send requests at once.
const MAX_CONCURRENT_PROBES: usize = 8;
/// The rate of requests of all probes in the long run, per second.
const REQUESTS_PER_SECOND: f64 = 1_000.0;
/// The greatest number of requests of all probes at once.
const BURST_REQUESTS: f64 = 20_000.0;

pub struct Prober {
    shared: Arc<Shared>,
    places: Semaphore,
    bucket: Mutex<Bucket>,
}

impl Prober {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            places: Semaphore::new(MAX_CONCURRENT_PROBES),
            bucket: Mutex::new(Bucket::new(
                REQUESTS_PER_SECOND,
                BURST_REQUESTS,
                Instant::now(),
            )),
        }
    }

    /// Returns the targets' figures when all samples are complete, or at the deadline. If there are
    /// too many probes, it returns the known figures at once.
    pub async fn run(&self, mut probe: Probe) -> Probed {
        let limit = Duration::from_millis(probe.deadline_millis.into()).min(MAX_DEADLINE);
        let deadline = Tick::now() + limit;
        probe.targets.truncate(MAX_TARGETS);
        let (targets, _) = targets::usable(&probe.targets);
        let samples = probe.samples.clamp(1, MAX_SAMPLES);
        // Nothing is sent to targets outside the cluster.
        let inside: Vec<_> = targets.iter().filter(|t| !t.is_outside()).collect();
        let requests = inside.len() as f64 * f64::from(samples);
        let place = self.places.try_acquire();
        if place.is_ok() && self.bucket.lock().take(requests, Instant::now()) {
            _ = timeout_at(deadline, self.measure(&inside, samples)).await;
        } else {
            self.shared.metrics.probes_limited.inc();
        }
        let (pairs, now) = (self.shared.pairs.lock(), Instant::now());
        let known = targets
            .iter()
            .filter_map(|t| Some(pairs::to_report(&t.key, pairs.get(&t.key)?, now)));
        Probed {
            id: probe.id,
            pairs: known.collect(),
        }
    }

    async fn measure(&self, targets: &[&Target], samples: u32) {
        let (open, ticket) = watch::channel(());
        let (visit, mut round) = (self.shared.visit(), Tick::now());
        for _ in 0..samples {
            let mut step = round;
            for some in targets.chunks(REQUESTS_PER_MILLISECOND) {
                sleep_until(step).await;
                for target in some {
                    let context = ProbeContext {
                        key: target.key.clone(),
                        visit,
                        ticket: Some(ticket.clone()),
                    };
                    self.shared.request_sample(target, context);
                }
                step += Duration::from_millis(1);
            }
            round = step.max(Tick::now() + MIN_SAMPLE_INTERVAL);
        }
        drop(ticket);
        // A ticket is dropped when its sample is recorded or its request is lost.
        open.closed().await;
    }
}
