//! Runs the measuring task of the latency agent: visits the target nodes on schedule, and records
//! round-trip times and losses of each pair of nodes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tautline_proto::latency::State;
use tokio::{
    net::TcpStream,
    sync::{
        mpsc::{Receiver, Sender, UnboundedReceiver},
        watch,
    },
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    echo::{Echo, Reply},
    in_flight::{LostRequest, TIMEOUT},
    metrics::Metrics,
    outside::OutsideSchedule,
    pair::{Pair, UNREACHABLE_LOSSES},
    pairs::Pairs,
    schedule::Schedule,
    targets::{Key, Replica, ReplicaLists, Target, TargetList},
};

/// The times from a first loss to its first and its second re-probe.
const REPROBE_DELAYS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(500)];
/// The time between two updates of the visit intervals of pairs, which also drop unused pairs.
const REFRESH_INTERVAL: Duration = Duration::from_secs(15);
/// The greatest number of results of TCP connects that wait for the measuring task.
pub const CONNECT_QUEUE_LENGTH: usize = 256;

#[derive(Debug)]
pub struct ProbeContext {
    pub key: Key,
    pub visit: u64,
    /// The ticket of a probe, which ends when all its tickets are dropped; `None`: the request
    /// belongs to no probe.
    pub ticket: Option<watch::Receiver<()>>,
}

#[derive(Debug)]
pub enum Command {
    Measure(Replica, TargetList),
    Forget(Replica),
}

pub struct Shared {
    pub echo: Arc<Echo<ProbeContext>>,
    pub pairs: Mutex<Pairs>,
    pub metrics: Metrics,
    /// A counter that changes when a pair becomes unreachable, or reachable again.
    pub urgent: watch::Sender<u64>,
    visits: AtomicU64,
}

impl Shared {
    pub fn new(echo: Echo<ProbeContext>, metrics: Metrics) -> Self {
        Self {
            echo: Arc::new(echo),
            pairs: Mutex::default(),
            metrics,
            urgent: watch::Sender::new(0),
            visits: AtomicU64::new(0),
        }
    }

    pub fn visit(&self) -> u64 {
        self.visits.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sends an echo request, unless the target is outside the cluster.
    pub fn request_sample(&self, target: &Target, context: ProbeContext) {
        let Some(secret) = &target.secret else {
            return;
        };
        let sent = (self.echo).send_request(target.address, secret, context);
        // For example, the socket's buffer is full. The next visit tries again.
        if let Err(error) = sent {
            tracing::debug!(?target, %error, "an echo request was not sent");
        }
    }

    /// Changes a pair, and wakes the streams if it became unreachable or reachable.
    fn change<R>(&self, key: &Key, now: Instant, change: impl FnOnce(&mut Pair) -> R) -> R {
        let mut pairs = self.pairs.lock();
        let pair = pairs.of(key, now);
        let before = pair.state(now);
        let result = change(pair);
        let after = pair.state(now);
        drop(pairs);
        if before != after && (before == State::Unreachable || after == State::Unreachable) {
            self.urgent.send_modify(|n| *n += 1);
        }
        result
    }
}

#[derive(Debug)]
pub struct ConnectResult {
    key: Key,
    visit: u64,
    sent: Instant,
    rtt: Option<Duration>,
}

pub struct Inbox {
    pub orders: Receiver<Command>,
    /// The replies, which are not more than the requests in flight; those have a bound.
    pub replies: UnboundedReceiver<Reply<ProbeContext>>,
    pub connected: Receiver<ConnectResult>,
}

pub struct MeasureTask {
    shared: Arc<Shared>,
    schedule: Schedule<Key>,
    outside: OutsideSchedule<Key>,
    lists: ReplicaLists,
    targets: HashMap<Key, Target>,
    retries: Vec<(Instant, Key)>,
    connected: Sender<ConnectResult>,
    tidied: Instant,
}

impl MeasureTask {
    pub fn new(shared: Arc<Shared>, connected: Sender<ConnectResult>, seed: u64) -> Self {
        let now = Instant::now();
        Self {
            shared,
            schedule: Schedule::new(seed, now),
            outside: OutsideSchedule::new(seed),
            lists: ReplicaLists::default(),
            targets: HashMap::new(),
            retries: Vec::new(),
            connected,
            tidied: now,
        }
    }

    pub async fn run(mut self, mut inbox: Inbox, stop: CancellationToken) -> Result<()> {
        loop {
            let wake = tokio::time::Instant::from_std(self.wake());
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(reply) = inbox.replies.recv() => self.replied(reply),
                Some(connected) = inbox.connected.recv() => self.connected(connected),
                Some(order) = inbox.orders.recv() => self.ordered(order),
                () = tokio::time::sleep_until(wake) => {}
            }
            self.run_due(Instant::now());
        }
    }

    fn wake(&self) -> Instant {
        let retry = self.retries.iter().map(|(at, _)| *at).min();
        let others = [
            self.schedule.next_visit_at(),
            self.outside.next_visit_at(),
            self.shared.echo.earliest(),
            retry,
        ];
        let tidy = self.tidied + REFRESH_INTERVAL;
        others.into_iter().flatten().fold(tidy, Instant::min)
    }

    fn run_due(&mut self, now: Instant) {
        for lost in self.shared.echo.expire(now) {
            self.lost(lost, now);
        }
        let due = |(at, _): &mut (Instant, Key)| *at <= now;
        let due: Vec<_> = self.retries.extract_if(.., due).collect();
        for (_, key) in due {
            let losing = self.shared.pairs.lock().get(&key).map_or(0, Pair::losses);
            if (1..UNREACHABLE_LOSSES).contains(&losing) {
                self.visit(&key, false);
            }
        }
        while let Some(key) = self.schedule.next(now) {
            let pairs = self.shared.pairs.lock();
            let udp_lost = pairs
                .get(&key)
                .is_some_and(|pair| pair.is_fallback() || pair.losses() >= UNREACHABLE_LOSSES);
            drop(pairs);
            self.visit(&key, udp_lost);
        }
        while let Some(key) = self.outside.next(now) {
            self.visit(&key, true);
        }
        if self.tidied + REFRESH_INTERVAL <= now {
            self.tidied = now;
            self.refresh(now);
        }
    }

    fn visit(&self, key: &Key, tcp_too: bool) {
        let Some(target) = self.targets.get(key) else {
            return;
        };
        let (key, visit) = (key.clone(), self.shared.visit());
        if tcp_too {
            self.connect(target, visit);
        }
        let ticket = None;
        self.shared
            .request_sample(target, ProbeContext { key, visit, ticket });
    }

    fn connect(&self, target: &Target, visit: u64) {
        let (key, address) = (target.key.clone(), target.address);
        let (connected, sent) = (self.connected.clone(), Instant::now());
        tokio::spawn(async move {
            let start = Instant::now();
            let rtt = match timeout(TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(_)) => Some(start.elapsed()),
                _ => None,
            };
            let end = ConnectResult {
                key,
                visit,
                sent,
                rtt,
            };
            _ = connected.send(end).await;
        });
    }

    fn replied(&mut self, reply: Reply<ProbeContext>) {
        let ProbeContext {
            key,
            visit,
            ticket: _ticket,
        } = reply.what;
        let now = Instant::now();
        let failing = self.shared.change(&key, now, |pair| {
            match reply.round_trip {
                Ok(rtt) => _ = pair.sample(rtt, visit, reply.sent, now),
                Err(_) => pair.answered(),
            }
            pair.losses() >= UNREACHABLE_LOSSES
        });
        self.schedule.failing(&key, failing);
    }

    fn lost(&mut self, lost: LostRequest<ProbeContext>, now: Instant) {
        let ProbeContext { key, visit, .. } = &lost.what;
        let Some(target) = self.targets.get(key) else {
            let mut pairs = self.shared.pairs.lock();
            pairs.of(key, now).lost(*visit, lost.sent);
            return;
        };
        let mut failing = false;
        let is_first = self.shared.change(key, now, |pair| {
            let before = pair.losses();
            let losses = pair.lost(*visit, lost.sent);
            if losses >= UNREACHABLE_LOSSES
                && let Some((rtt, sent)) = pair.take_connect()
            {
                pair.connected(rtt, *visit, sent, now);
                self.shared.metrics.fallback.inc();
            }
            failing = pair.losses() >= UNREACHABLE_LOSSES;
            let is_first = losses > before && losses == 1;
            if is_first {
                pair.want_connect(now);
            }
            is_first
        });
        self.schedule.failing(key, failing);
        if is_first {
            self.connect(target, *visit);
            let retries = REPROBE_DELAYS.map(|after| (now + after, key.clone()));
            self.retries.extend(retries);
        }
    }

    fn connected(&mut self, end: ConnectResult) {
        let ConnectResult {
            key,
            visit,
            sent,
            rtt,
        } = end;
        let Some(target) = self.targets.get(&key) else {
            return;
        };
        let now = Instant::now();
        if target.is_outside() {
            self.shared.change(&key, now, |pair| match rtt {
                Some(rtt) => _ = pair.connected(rtt, visit, sent, now),
                None => _ = pair.lost(visit, sent),
            });
            return;
        }
        let Some(rtt) = rtt else {
            return;
        };
        let used = self.shared.change(&key, now, |pair| {
            let udp_lost = pair.is_fallback() || pair.losses() >= UNREACHABLE_LOSSES;
            let used = udp_lost && pair.connected(rtt, visit, sent, now);
            if !used {
                pair.offer_connect((rtt, sent));
            }
            used
        });
        if used {
            self.schedule.failing(&key, false);
            self.shared.metrics.fallback.inc();
        }
    }

    fn ordered(&mut self, order: Command) {
        match order {
            Command::Measure(replica, list) => {
                let id = list.echo_id;
                self.lists.set(replica, list);
                self.take(Some(id));
            }
            Command::Forget(replica) => {
                self.lists.forget(replica);
                self.take(None);
            }
        }
    }

    fn take(&mut self, id: Option<u64>) {
        let (union, now) = (self.lists.merge(), Instant::now());
        self.shared.echo.set_identity(id, &union.keys);
        let (outside, inside): (Vec<_>, Vec<_>) =
            union.targets.iter().partition(|t| t.is_outside());
        let each = inside.iter();
        self.schedule
            .set(each.map(|t| (t.key.clone(), t.demand)), now);
        let each = outside.iter().map(|t| (t.key.clone(), t.outside_interval));
        self.outside.set(each, now);
        self.shared.metrics.outside.set(outside.len() as i64);
        let each = union.targets.into_iter();
        let targets: HashMap<_, _> = each.map(|t| (t.key.clone(), t)).collect();
        let before = std::mem::replace(&mut self.targets, targets);
        for (key, target) in &self.targets {
            if before.get(key).is_some_and(|t| !t.same_endpoint(target)) {
                self.shared.change(key, now, |pair| pair.moved(now));
                self.schedule.prioritize(key, now);
                self.outside.prioritize(key, now);
            }
        }
        self.retries
            .retain(|(_, key)| self.targets.contains_key(key));
        self.refresh(now);
        let (base, demand, excess) = self.schedule.sizes();
        let metrics = &self.shared.metrics;
        metrics.targets.set(base as i64);
        metrics.demand.set(demand as i64);
        metrics.demand_excess.set(excess as i64);
        metrics.base_excess.set(union.refused as i64);
    }

    fn refresh(&self, now: Instant) {
        let each = self.targets.iter().map(|(key, target)| {
            let outside = target.is_outside().then_some(target.outside_interval);
            (key, outside.or_else(|| self.schedule.refresh(key)))
        });
        self.shared.pairs.lock().visited(each, now);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tautline_proto::latency;
    use tokio::{net::TcpListener, sync::mpsc};

    use super::*;
    use crate::outside::MIN_OUTSIDE_INTERVAL;

    fn list(address: SocketAddr) -> TargetList {
        TargetList::from(latency::Targets {
            targets: vec![latency::Target {
                node: "outside".to_owned(),
                address: address.to_string(),
                outside: true,
                ..latency::Target::default()
            }],
            echo_id: 1,
            responder_keys: Vec::new(),
        })
    }

    #[tokio::test]
    async fn outside_target_is_connected_to_once_an_interval_and_unreachable_after_three() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let metrics = Metrics::default();
        let echo = Echo::bind(any, metrics.clone()).unwrap();
        let shared = Arc::new(Shared::new(echo, metrics.clone()));
        let (connected, mut connects) = mpsc::channel(CONNECT_QUEUE_LENGTH);
        let mut task = MeasureTask::new(Arc::clone(&shared), connected, 7);
        let listener = TcpListener::bind(any).await.unwrap();
        let address = listener.local_addr().unwrap();
        for replica in 0..2 {
            task.ordered(Command::Measure((replica, any), list(address)));
        }
        let key = list(address).targets[0].key.clone();
        let figures = || {
            let (pairs, now) = (shared.pairs.lock(), Instant::now());
            pairs.get(&key).unwrap().figures(now)
        };

        let mut now = Instant::now() + MIN_OUTSIDE_INTERVAL;
        task.run_due(now);
        assert!(task.outside.next_visit_at() > Some(now + MIN_OUTSIDE_INTERVAL / 2));
        task.connected(connects.recv().await.unwrap());
        let pair = figures();
        assert_eq!(
            (pair.state(), pair.connect, pair.samples),
            (State::Measured, true, 1)
        );

        drop(listener);
        for _ in 0..UNREACHABLE_LOSSES {
            assert_eq!(figures().state(), State::Measured);
            now += MIN_OUTSIDE_INTERVAL;
            task.run_due(now);
            task.connected(connects.recv().await.unwrap());
            assert!(task.retries.is_empty(), "the target is probed again");
        }
        assert_eq!(figures().state(), State::Unreachable);
        assert!(*shared.urgent.borrow() > 0);
        assert_eq!(metrics.sent.get(), 0);

        // The losses were those of the old address.
        task.ordered(Command::Measure(
            (0, any),
            list(([127, 0, 0, 2], address.port()).into()),
        ));
        assert_eq!(figures().state(), State::Measured);
        assert!(task.outside.next_visit_at() <= Some(Instant::now() + MIN_OUTSIDE_INTERVAL));
    }
}
