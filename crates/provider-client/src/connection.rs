//! The connection to one address, with its circuit breaker: after repeated failures the breaker
//! admits one probe at a time.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tautline_core::providers::Address;
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::{codec::RawCall, error::CallError};

/// The time without use after which a connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// The number of consecutive failures that opens the breaker.
const FAILURE_THRESHOLD: u32 = 5;
/// The first pause; each failed probe doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct Breaker {
    failures: u32,
    open_until: Option<Instant>,
    pause: Duration,
    probing: bool,
}

impl Breaker {
    /// Admits a call, and returns whether it is a probe. After a probe it admits no call until the
    /// probe's result is [`record`](Self::record)ed.
    fn admit(&mut self, now: Instant) -> Option<bool> {
        match self.open_until {
            None => Some(false),
            Some(until) if now >= until && !self.probing => {
                self.probing = true;
                Some(true)
            }
            Some(_) => None,
        }
    }

    fn record(&mut self, now: Instant, is_probe: bool, success: bool) {
        self.forget(is_probe);
        if success {
            *self = Self::default();
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.pause = match self.open_until {
            None if self.failures < FAILURE_THRESHOLD => return,
            None => FIRST_PAUSE,
            Some(_) if is_probe => (self.pause * 2).min(LONGEST_PAUSE),
            // The call was in progress when the breaker opened.
            Some(_) => return,
        };
        self.open_until = Some(now + self.pause);
    }

    /// Records that an admitted call ended without a result, because its caller was dropped.
    fn forget(&mut self, is_probe: bool) {
        self.probing &= !is_probe;
    }

    fn is_open(&self) -> bool {
        self.open_until.is_some()
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub address: Address,
    pub channel: Channel,
    state: Mutex<State>,
    /// The number of open breakers of all connections.
    open: Gauge,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    used: Instant,
    last_error: String,
    /// The next probe; `None` unless a task is probing.
    probe: Option<RawCall>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.state.get_mut().breaker.is_open() {
            self.open.dec();
        }
    }
}

impl Connection {
    pub(crate) fn new(address: Address, channel: Channel, open: Gauge) -> Self {
        let state = State {
            breaker: Breaker::default(),
            used: Instant::now(),
            last_error: String::new(),
            probe: None,
        };
        Self {
            address,
            channel,
            state: Mutex::new(state),
            open,
        }
    }

    /// Admits one call, unless the breaker is open; a call that may be the probe passes an open
    /// breaker after its pause.
    pub(crate) fn admit(self: &Arc<Self>, may_probe: bool) -> Option<CallGuard> {
        let (mut state, now) = (self.state.lock(), Instant::now());
        state.used = now;
        if !may_probe && state.breaker.is_open() {
            return None;
        }
        let is_probe = state.breaker.admit(now)?;
        Some(self.guard(is_probe))
    }

    pub(crate) fn is_used(&self) -> bool {
        self.state.lock().used.elapsed() < IDLE_TIMEOUT
    }

    pub(crate) fn last_error(&self) -> String {
        self.state.lock().last_error.clone()
    }

    /// The end of the pause; `None` if the breaker is closed.
    pub(crate) fn open_until(&self) -> Option<Instant> {
        self.state.lock().breaker.open_until
    }

    /// Sets the next probe, and returns whether the caller must start the probing task.
    pub(crate) fn set_probe(&self, probe: RawCall) -> bool {
        self.state.lock().probe.replace(probe).is_none()
    }

    /// Admits the next probe, unless another call is the probe just now.
    pub(crate) fn admit_probe(self: &Arc<Self>) -> Option<(CallGuard, RawCall)> {
        let mut state = self.state.lock();
        let call = state.probe.clone()?;
        let is_probe = state.breaker.admit(Instant::now())?;
        Some((self.guard(is_probe), call))
    }

    fn guard(self: &Arc<Self>, is_probe: bool) -> CallGuard {
        CallGuard {
            connection: Arc::clone(self),
            is_probe,
            recorded: false,
        }
    }

    /// The time of the next probe; `None` if the breaker is closed or the address unused, which
    /// ends the probing.
    pub(crate) fn probe_due(&self) -> Option<Instant> {
        let is_used = self.is_used();
        let mut state = self.state.lock();
        let due = state.breaker.open_until.filter(|_| is_used);
        if due.is_none() {
            state.probe = None;
        }
        due
    }
}

/// One admitted call. A call that is dropped without a result has no effect on the breaker.
#[derive(Debug)]
pub(crate) struct CallGuard {
    pub connection: Arc<Connection>,
    is_probe: bool,
    recorded: bool,
}

impl CallGuard {
    /// Records the result of the call: the failure, or `None` if the provider is well.
    pub(crate) fn record(mut self, failure: Option<&CallError>) {
        self.recorded = true;
        let Connection { address, open, .. } = &*self.connection;
        let mut state = self.connection.state.lock();
        if let Some(error) = failure {
            state.last_error = error.to_string();
        }
        let before = state.breaker.is_open();
        let success = failure.is_none();
        state.breaker.record(Instant::now(), self.is_probe, success);
        match (before, state.breaker.is_open()) {
            (false, true) => {
                open.inc();
                let error = &state.last_error;
                tracing::info!(%address, %error, "provider address is not called for a while");
            }
            (true, false) => {
                open.dec();
                tracing::info!(%address, "provider address answers again");
            }
            _ => {}
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if !self.recorded {
            self.connection.state.lock().breaker.forget(self.is_probe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaker_opens_probes_and_closes() {
        let start = Instant::now();
        let mut b = Breaker::default();
        for _ in 0..FAILURE_THRESHOLD {
            assert_eq!(b.admit(start), Some(false));
            b.record(start, false, false);
        }
        assert_eq!(b.admit(start), None);
        let later = start + FIRST_PAUSE;
        assert_eq!(b.admit(later), Some(true), "a probe");
        assert_eq!(b.admit(later), None, "one probe at a time");
        b.forget(false);
        assert_eq!(b.admit(later), None, "an earlier call is not the probe");
        b.record(later, true, false);
        assert_eq!(b.admit(later + FIRST_PAUSE), None, "the pause has doubled");
        let later = later + FIRST_PAUSE * 2;
        assert_eq!(b.admit(later), Some(true));
        b.forget(true);
        assert_eq!(
            b.admit(later),
            Some(true),
            "a forgotten probe is no failure"
        );
        b.record(later, true, true);
        assert_eq!([b.admit(later), b.admit(later)], [Some(false); 2]);
        assert!(!b.is_open());
    }

    #[test]
    fn breaker_ignores_failures_of_earlier_calls() {
        let now = Instant::now();
        let mut b = Breaker::default();
        for _ in 0..FAILURE_THRESHOLD * 3 {
            assert_eq!(b.admit(now), Some(false));
        }
        for _ in 0..FAILURE_THRESHOLD * 3 {
            b.record(now, false, false);
        }
        assert_eq!(b.admit(now + FIRST_PAUSE), Some(true));
    }

    #[test]
    fn breaker_stays_closed_with_successes_between() {
        let now = Instant::now();
        let mut b = Breaker::default();
        for i in 0..50 {
            assert_eq!(b.admit(now), Some(false));
            b.record(now, false, i % (FAILURE_THRESHOLD - 1) == 0);
        }
    }

    #[test]
    fn breaker_pause_is_bounded() {
        let mut now = Instant::now();
        let mut b = Breaker::default();
        for _ in 0..100 {
            let is_probe = loop {
                if let Some(is_probe) = b.admit(now) {
                    break is_probe;
                }
                now += FIRST_PAUSE;
            };
            b.record(now, is_probe, false);
        }
        assert_eq!(b.admit(now + LONGEST_PAUSE), Some(true));
    }
}
