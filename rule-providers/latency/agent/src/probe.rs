//! Probes: the provider requests samples within a deadline.

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

const TARGETS: usize = 1_024;
const SAMPLES: u32 = 5;
const LONGEST: Duration = Duration::from_secs(10);
/// Samples of one target are so far apart, at least.
const APART: Duration = Duration::from_millis(2);
/// Requests a millisecond: a round to 1,024 targets takes 32 ms.
const PACE: usize = 32;
const AT_ONCE: usize = 8;
/// Requests a second in the long run, and at once.
const RATE: f64 = 1_000.0;
const BURST: f64 = 20_000.0;

/// Held by each request of a probe; the probe ends when all are dropped.
#[derive(Debug)]
pub struct Ticket {
    _open: watch::Receiver<()>,
}

pub struct Prober {
    shared: Arc<Shared>,
    places: Semaphore,
    bucket: Mutex<Bucket>,
}

impl Prober {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            places: Semaphore::new(AT_ONCE),
            bucket: Mutex::new(Bucket::new(RATE, BURST, Instant::now())),
        }
    }

    /// Returns the targets' figures when all samples are complete, or at the deadline.
    pub async fn run(&self, mut probe: Probe) -> Probed {
        let deadline = Duration::from_millis(probe.deadline_millis.into()).min(LONGEST);
        let deadline = Tick::now() + deadline;
        probe.targets.truncate(TARGETS);
        let (targets, _) = targets::usable(&probe.targets);
        let samples = probe.samples.clamp(1, SAMPLES);
        let requests = targets.len() as f64 * f64::from(samples);
        let place = self.places.try_acquire();
        if place.is_ok() && self.bucket.lock().take(requests, Instant::now()) {
            _ = timeout_at(deadline, self.measure(&targets, samples)).await;
        } else {
            self.shared.metrics.probes_limited.inc();
        }
        let (pairs, now) = (self.shared.pairs.lock(), Instant::now());
        let known = targets
            .iter()
            .filter_map(|t| Some(pairs::to_report(&t.key, pairs.get(&t.key)?.figures(now))));
        Probed {
            id: probe.id,
            pairs: known.collect(),
        }
    }

    async fn measure(&self, targets: &[Target], samples: u32) {
        let (open, ticket) = watch::channel(());
        let (visit, mut round) = (self.shared.visit(), Tick::now());
        for _ in 0..samples {
            let mut step = round;
            for some in targets.chunks(PACE) {
                sleep_until(step).await;
                for target in some {
                    let context = ProbeContext {
                        key: target.key.clone(),
                        visit,
                        ticket: Some(Ticket {
                            _open: ticket.clone(),
                        }),
                    };
                    self.shared.request_sample(target, context);
                }
                step += Duration::from_millis(1);
            }
            round = step.max(Tick::now() + APART);
        }
        drop(ticket);
        // Dropped when the sample is recorded, or the request is lost.
        open.closed().await;
    }
}
