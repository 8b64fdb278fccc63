//! One direction of a pair of nodes, by the reports of the first node's agent.

use std::{cmp::Reverse, time::Duration};

use tautline_proto::latency::{Pair, State};

use crate::measurement::{Measurement, RttStats};

const MAX_RTT: Duration = Duration::from_secs(10);
/// The time after the start of a session in which losses do not count. The first losses of a
/// session may be from before the network was repaired, and an agent could not answer before it
/// connected.
const SETTLING_TIME: Duration = Duration::from_secs(5);
/// The visit interval above which an unreachable pair is probed again when a request needs it.
const RARE_VISIT_INTERVAL: Duration = Duration::from_secs(5);
/// The time without a frame after which an agent counts as silent; it sends a frame every 2 s.
pub(super) const FRAME_TIMEOUT: Duration = Duration::from_secs(6);
/// The time without a report after which a pair is no longer measured; its agent reports it every
/// 30 s.
pub(super) const REPORT_TIMEOUT: Duration = Duration::from_secs(45);
/// The assumed visit interval of a pair that was measured once, for a probe.
const PROBED_INTERVAL: Duration = Duration::from_secs(15);
/// The time after which such a pair expires; by then its request has been answered.
const PROBED_RETENTION: Duration = Duration::from_secs(60);
/// The longest visit interval that is stored; agents with far too many targets have longer ones.
const MAX_VISIT_INTERVAL: Duration = Duration::from_secs(120);
/// The time after its last sample or loss at which a pair expires.
pub(crate) const PAIR_RETENTION: Duration = Duration::from_secs(600);
/// The ratio of the directions' p50 above which a pair is flagged as asymmetric.
const ASYMMETRY_RATIO: f64 = 1.2;

/// A round-trip time in units of 10 ns, to save memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct CompactRtt(u32);

impl CompactRtt {
    const UNIT_NANOS: u64 = 10;

    fn new(nanos: u64) -> Option<Self> {
        if nanos == 0 || u128::from(nanos) > MAX_RTT.as_nanos() {
            return None;
        }
        u32::try_from(nanos.div_ceil(Self::UNIT_NANOS))
            .ok()
            .map(Self)
    }

    fn duration(self) -> Duration {
        Duration::from_nanos(u64::from(self.0) * Self::UNIT_NANOS)
    }
}

/// A time since the store began in units of 20 ms, rounded up; it overflows after 2.7 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CompactTime(u32);

impl CompactTime {
    const CLOCK_UNIT: Duration = Duration::from_millis(20);

    fn new(at: Duration) -> Self {
        let units = at.as_micros().div_ceil(Self::CLOCK_UNIT.as_micros());
        Self(u32::try_from(units).unwrap_or(u32::MAX))
    }

    pub fn time(self) -> Duration {
        Self::CLOCK_UNIT * self.0
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DirectedPair {
    state: State,
    /// The medians after the last three visits, newest first; 0 for a missing one.
    windows: [CompactRtt; 3],
    p50: CompactRtt,
    p95: CompactRtt,
    /// The width of the middle half of the samples; 0 if unknown.
    middle_half: CompactRtt,
    samples: u16,
    interval_millis: u32,
    sampled: CompactTime,
    pub reported: CompactTime,
    /// The time of the first report with the current state.
    since: CompactTime,
    connect: bool,
}

/// The last session of the agent that reports a pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reporter {
    pub since: Duration,
    pub last_frame: Duration,
    /// True if the session was open at the last frame and the agent has not closed it.
    pub connected: bool,
}

impl DirectedPair {
    /// Converts a pair of a report; returns `None` if it is malformed. `before` is the pair as last
    /// reported.
    pub fn from_report(report: &Pair, before: Option<&Self>, now: Duration) -> Option<Self> {
        let state = State::try_from(report.state).ok()?;
        let age = Duration::from_millis(report.age_millis.into());
        if report.window_nanos.len() > 3 {
            return None;
        }
        let reported = CompactTime::new(now);
        let same_state = before.filter(|before| before.state == state);
        let mut pair = Self {
            state,
            interval_millis: report
                .refresh_millis
                .min(MAX_VISIT_INTERVAL.as_millis() as u32),
            reported,
            since: same_state.map_or(reported, |before| before.since),
            // Without new times the old ones stay, with their age.
            ..before.copied().unwrap_or_default()
        };
        if state != State::Measured && report.window_nanos.is_empty() {
            return Some(pair);
        }
        pair.windows = Default::default();
        for (window, nanos) in pair.windows.iter_mut().zip(&report.window_nanos) {
            *window = CompactRtt::new(*nanos)?;
        }
        pair.p50 = CompactRtt::new(report.p50_nanos)?;
        pair.p95 = CompactRtt::new(report.p95_nanos)?;
        pair.samples = u16::try_from(report.samples).unwrap_or(u16::MAX);
        pair.sampled = CompactTime::new(now.saturating_sub(age));
        pair.connect = report.connect;
        // A width above p95 is impossible: it counts as unknown, and the times stay valid.
        let middle_half = CompactRtt::new(report.middle_half_nanos);
        pair.middle_half = middle_half.filter(|m| *m <= pair.p95).unwrap_or_default();
        let valid = pair.windows[0].0 > 0 && pair.p50 <= pair.p95 && pair.samples > 0;
        (valid && (age <= PAIR_RETENTION || state != State::Measured)).then_some(pair)
    }

    /// Returns the round-trip time in microseconds, and half the width of its 80 % interval as a
    /// natural logarithm. The interval is the middle half of the samples, which contains the median
    /// of five samples four times in five.
    pub fn sample(&self) -> Option<(f32, Option<f32>)> {
        let mut known: Vec<CompactRtt> = self.windows.into_iter().filter(|w| w.0 > 0).collect();
        known.sort_unstable();
        let middle = known.get(known.len() / 2)?;
        let micros = middle.0 as f32 * CompactRtt::UNIT_NANOS as f32 / 1e3;
        // The ends of the interval are the middle multiplied and divided by one factor.
        let spread = (self.middle_half.0 as f32 / 2.0 / middle.0 as f32).asinh();
        Some((micros, (spread > 0.0).then_some(spread)))
    }

    pub fn is_probed(&self) -> bool {
        self.interval_millis == 0
    }

    pub fn is_empty(&self) -> bool {
        self.windows[0].0 == 0 && !self.is_unreachable()
    }

    pub fn is_unreachable(&self) -> bool {
        self.state == State::Unreachable
    }

    /// Returns whether the pair is measured, and was unreachable `before`.
    pub fn is_regained(&self, before: &Self) -> bool {
        before.is_unreachable() && self.state == State::Measured
    }

    /// Returns whether the last visit failed and its losses count, even if that was long ago.
    pub fn is_lost(
        &self,
        reporter: Reporter,
        target_since: Option<Duration>,
        now: Duration,
    ) -> bool {
        self.is_unreachable()
            && !self.is_expired(now)
            && self.losses_count(reporter, target_since, now)
    }

    fn retention(&self) -> Duration {
        if self.is_probed() {
            PROBED_RETENTION
        } else {
            PAIR_RETENTION
        }
    }

    pub fn visit_interval(&self) -> Duration {
        match self.interval_millis {
            0 => PROBED_INTERVAL,
            millis => Duration::from_millis(millis.into()),
        }
    }

    fn fresh_until(&self, reporter: Reporter) -> Duration {
        let tried = match self.state {
            State::Unreachable => self.reported,
            _ => self.sampled,
        };
        let by_sample = tried.time() + self.visit_interval() * 2;
        // Frames without the pair mean that it was visited and did not change.
        let visited =
            reporter.last_frame < self.reported.time() + REPORT_TIMEOUT && self.interval_millis > 0;
        if !visited {
            return by_sample;
        }
        let silence = if reporter.connected {
            FRAME_TIMEOUT
        } else {
            Duration::ZERO
        };
        by_sample.max(reporter.last_frame + self.visit_interval().max(silence))
    }

    pub fn is_expired(&self, now: Duration) -> bool {
        let seen = match self.state {
            State::Unreachable => self.sampled.max(self.reported),
            _ => self.sampled,
        };
        now >= seen.time() + self.retention()
    }

    /// Returns the measurement of this direction. `target_since` is the start of the last session
    /// of the target's agent, or `None` if that agent left while its node is up.
    pub fn measurement(
        &self,
        reporter: Reporter,
        target_since: Option<Duration>,
        now: Duration,
    ) -> Measurement {
        if self.is_expired(now) {
            return Measurement::Missing;
        }
        let fresh = now < self.fresh_until(reporter);
        match self.state {
            State::Measured if fresh => Measurement::Fresh(self.stats(reporter, now)),
            State::Unreachable if fresh && self.losses_count(reporter, target_since, now) => {
                Measurement::Unreachable {
                    since: now.saturating_sub(self.since.time()),
                    rarely_probed: self.visit_interval() > RARE_VISIT_INTERVAL,
                }
            }
            _ if self.windows[0].0 > 0 && now < self.sampled.time() + self.retention() => {
                Measurement::Stale(self.stats(reporter, now))
            }
            _ => Measurement::Missing,
        }
    }

    /// Returns whether the network caused the losses: the target has an agent, which has been
    /// connected long enough for a visit and its result.
    fn losses_count(
        &self,
        reporter: Reporter,
        target_since: Option<Duration>,
        now: Duration,
    ) -> bool {
        let Some(target) = target_since else {
            return false;
        };
        let new_in_session = self.since.time() >= reporter.since;
        self.reported.time() >= target
            && reporter.last_frame >= target + self.visit_interval() + SETTLING_TIME
            && (!new_in_session || now >= reporter.since + SETTLING_TIME)
    }

    pub fn sampled_after(&self, lost: &Self) -> bool {
        self.sampled > lost.since
    }

    fn stats(&self, reporter: Reporter, now: Duration) -> RttStats {
        let age = now.saturating_sub(self.sampled.time());
        let alive = reporter.connected
            && now < reporter.last_frame + FRAME_TIMEOUT
            && self.state == State::Measured;
        let known = self.windows.into_iter().filter(|w| w.0 > 0);
        RttStats {
            median: self.windows[0].duration(),
            windows: known.map(CompactRtt::duration).collect(),
            p50: self.p50.duration(),
            p95: self.p95.duration(),
            samples: self.samples.into(),
            // The agent would have reported an older pair as stale.
            age: if alive {
                age.min(self.visit_interval() * 2)
            } else {
                age
            },
            asymmetric: false,
            connect: self.connect,
        }
    }
}

/// Combines both directions. Losses count first, then the fresher direction, then echoes before
/// connects, then the larger time.
pub(super) fn combined(there: Measurement, back: Measurement) -> Measurement {
    use Measurement::{Fresh, Missing, Stale, Unreachable};
    match (there, back) {
        (
            Unreachable {
                since: a,
                rarely_probed: a_rarely,
            },
            Unreachable {
                since: b,
                rarely_probed: b_rarely,
            },
        ) => Unreachable {
            since: a.max(b),
            rarely_probed: a_rarely && b_rarely,
        },
        (lost @ Unreachable { .. }, _) | (_, lost @ Unreachable { .. }) => lost,
        // The times of connects and of echoes are not comparable.
        (Fresh(echo), Fresh(other)) | (Fresh(other), Fresh(echo))
            if other.connect && !echo.connect =>
        {
            Fresh(echo)
        }
        (Fresh(a), Fresh(b)) => {
            let (low, high) = (a.p50.min(b.p50), a.p50.max(b.p50));
            let asymmetric = high.as_secs_f64() > low.as_secs_f64() * ASYMMETRY_RATIO;
            // The younger one of equal times counts, so that the order does not matter.
            let size = |s: &RttStats| (s.median, Reverse(s.age), s.p95, s.samples);
            let larger = if size(&a) >= size(&b) { a } else { b };
            Fresh(RttStats {
                asymmetric,
                ..larger
            })
        }
        (fresh @ Fresh(_), _) | (_, fresh @ Fresh(_)) => fresh,
        (Stale(a), Stale(b)) => {
            let age = |s: &RttStats| (s.age, Reverse(s.median), Reverse(s.p95), s.samples);
            Stale(if age(&a) <= age(&b) { a } else { b })
        }
        (stale @ Stale(_), Missing) | (Missing, stale) => stale,
    }
}
