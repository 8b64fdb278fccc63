use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use tautline_proto::latency::{self, State};

use crate::echo::MAX_ROUND_TRIP;

/// The number of the last samples that give p50 and p95.
const MAX_SAMPLES: usize = 60;
/// The number of the last samples that give a window's median.
const WINDOW_SAMPLES: usize = 5;
/// The number of the last windows of a pair.
const MAX_WINDOWS: usize = 3;
/// The minimum time between two windows, so that one disturbance does not fill three windows.
const MIN_WINDOW_INTERVAL: Duration = Duration::from_secs(1);
/// The number of consecutive losses after which a target is unreachable.
pub const UNREACHABLE_LOSSES: u32 = 3;
/// The assumed visit interval of pairs that are not scheduled.
const UNVISITED_REFRESH: Duration = Duration::from_secs(30);
/// The number of the last samples that give the middle half. With more samples, a change of the
/// path would count as noise for longer.
const RECENT_SAMPLES: usize = 20;

/// A TCP connect: the time that it took, and its start.
type Connect = (Duration, Instant);

#[derive(Debug, Default)]
pub struct Pair {
    /// The last round-trip times, in nanoseconds, the oldest first.
    samples: VecDeque<u64>,
    /// The medians of the last windows, in nanoseconds, the newest first.
    windows: VecDeque<u64>,
    /// The number of the visit that took the last sample.
    visit: u64,
    /// The start of the newest window.
    began: Option<Instant>,
    /// The times at which the last sample was taken and its request was sent.
    sampled: Option<(Instant, Instant)>,
    losses: u32,
    lost_visit: u64,
    fallback: bool,
    /// True if the samples are times of TCP connects, which are never mixed with times of echoes.
    connects: bool,
    /// The time of the first loss in a row.
    first_loss: Option<Instant>,
    /// A TCP connect since the first loss, which replaces the sample if further echoes are lost.
    early_connect: Option<Connect>,
    moved: Option<Instant>,
    /// The interval between visits; `None`: the target is not scheduled.
    pub refresh: Option<Duration>,
}

impl Pair {
    /// Adds a sample. Returns false if it is out of range, or its request went to an earlier
    /// address. Samples of one visit, or within a second, belong to one window.
    pub fn sample(&mut self, rtt: Duration, visit: u64, sent: Instant, now: Instant) -> bool {
        self.take(rtt, visit, (sent, now), false)
    }

    fn take(
        &mut self,
        rtt: Duration,
        visit: u64,
        (sent, now): (Instant, Instant),
        connect: bool,
    ) -> bool {
        let Ok(nanos) = u64::try_from(rtt.as_nanos()) else {
            return false;
        };
        if rtt.is_zero() || rtt > MAX_ROUND_TRIP || self.before_move(sent) {
            return false;
        }
        if std::mem::replace(&mut self.connects, connect) != connect {
            self.samples.clear();
            self.windows.clear();
            self.began = None;
            self.visit = 0;
        }
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(nanos);
        self.sampled = Some((now, sent));
        self.answered();
        let last = self.samples.iter().rev().take(WINDOW_SAMPLES).copied();
        let median = percentile(last.collect(), 50);
        let early = |began| now.saturating_duration_since(began) < MIN_WINDOW_INTERVAL;
        if self.visit == visit || self.began.is_some_and(early) {
            self.windows.pop_front();
        } else {
            self.began = Some(now);
        }
        self.visit = visit;
        self.windows.push_front(median);
        self.windows.truncate(MAX_WINDOWS);
        true
    }

    pub fn moved(&mut self, now: Instant) {
        self.answered();
        (self.first_loss, self.early_connect) = (None, None);
        self.moved = Some(now);
    }

    fn before_move(&self, sent: Instant) -> bool {
        self.moved.is_some_and(|moved| sent < moved)
    }

    /// Records that the target answered, with or without a valid sample.
    pub fn answered(&mut self) {
        self.losses = 0;
        self.fallback = false;
    }

    pub fn connected(&mut self, rtt: Duration, visit: u64, sent: Instant, now: Instant) -> bool {
        let taken = self.take(rtt, visit, (sent, now), true);
        self.fallback = taken;
        taken
    }

    /// Waits for a TCP connect that starts from now on.
    pub fn want_connect(&mut self, now: Instant) {
        (self.first_loss, self.early_connect) = (Some(now), None);
    }

    /// Stores a TCP connect, if it was waited for.
    pub fn offer_connect(&mut self, connect: Connect) {
        if self.first_loss.is_some_and(|since| connect.1 >= since) {
            self.early_connect = Some(connect);
        }
    }

    pub fn take_connect(&mut self) -> Option<Connect> {
        self.early_connect.take()
    }

    /// Adds a loss, and returns the number of consecutive losses. Losses of one visit count once. A
    /// loss does not count if its request was sent before the request of the last sample, or to an
    /// earlier address.
    pub fn lost(&mut self, visit: u64, sent: Instant) -> u32 {
        let since = self.sampled.is_none_or(|(_, last)| sent > last);
        if since && self.lost_visit != visit && !self.before_move(sent) {
            self.lost_visit = visit;
            self.losses = self.losses.saturating_add(1);
        }
        self.losses
    }

    pub fn losses(&self) -> u32 {
        self.losses
    }

    pub fn is_fallback(&self) -> bool {
        self.fallback
    }

    pub fn heard(&self) -> Option<Instant> {
        self.sampled.map(|(at, _)| at)
    }

    pub fn state(&self, now: Instant) -> State {
        if self.losses >= UNREACHABLE_LOSSES {
            return State::Unreachable;
        }
        let stale = 2 * self.refresh.unwrap_or(UNVISITED_REFRESH);
        match self.heard() {
            Some(at) if now.saturating_duration_since(at) <= stale => State::Measured,
            _ => State::Stale,
        }
    }

    /// Returns the pair as it is reported, without its names.
    pub fn figures(&self, now: Instant) -> latency::Pair {
        let millis = |of: Duration| u32::try_from(of.as_millis()).unwrap_or(u32::MAX);
        let all: Vec<u64> = self.samples.iter().copied().collect();
        let recent = self.samples.iter().rev().take(RECENT_SAMPLES).copied();
        let age = |at| now.saturating_duration_since(at);
        latency::Pair {
            state: self.state(now).into(),
            window_nanos: self.windows.iter().copied().collect(),
            p50_nanos: percentile(all.clone(), 50),
            p95_nanos: percentile(all, 95),
            middle_half_nanos: middle_half(recent.collect()),
            samples: u32::try_from(self.samples.len()).unwrap_or(u32::MAX),
            age_millis: millis(self.heard().map_or(Duration::MAX, age)),
            refresh_millis: millis(self.refresh.unwrap_or_default()),
            connect: self.connects,
            ..latency::Pair::default()
        }
    }
}

/// Returns a percentile by nearest rank, or 0 without values. The median of an even number of
/// values is the lower one, because disturbances make samples longer.
fn percentile(mut of: Vec<u64>, percent: usize) -> u64 {
    if of.is_empty() {
        return 0;
    }
    let rank = (of.len() * percent).div_ceil(100).max(1) - 1;
    *of.select_nth_unstable(rank).1
}

/// Returns p75 - p25 by Hazen's positions, at least 1, or 0 for fewer than [`WINDOW_SAMPLES`]
/// values.
fn middle_half(mut of: Vec<u64>) -> u64 {
    if of.len() < WINDOW_SAMPLES {
        return 0;
    }
    of.sort_unstable();
    // Positions, and then values, are in quarters, so the result is exact.
    let quartile = |n: usize| {
        let at = of.len() * n - 2;
        let (below, above) = (of[at / 4], of[at.div_ceil(4)]);
        4 * below + (above - below) * (at % 4) as u64
    };
    ((quartile(3) - quartile(1)) / 4).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn nanos(n: u64) -> Duration {
        Duration::from_nanos(n)
    }

    #[test]
    fn one_slow_sample_moves_no_median_and_three_visits_move_it() {
        let (mut pair, start) = (Pair::default(), Instant::now());
        let at = |visit: u64| start + 1_000 * MS * visit as u32;
        for visit in 1..=10 {
            pair.sample(5 * MS, visit, start, at(visit));
        }
        pair.sample(500 * MS, 11, start, at(11));
        assert_eq!(pair.windows.front(), Some(&5_000_000));
        for visit in 12..=14 {
            pair.sample(9 * MS, visit, start, at(visit));
        }
        assert_eq!(pair.windows.front(), Some(&9_000_000));
        let figures = pair.figures(at(14));
        assert_eq!(figures.window_nanos, [9_000_000, 9_000_000, 5_000_000]);
        assert_eq!((figures.samples, figures.p50_nanos), (14, 5_000_000));
        assert_eq!(figures.p95_nanos, 500_000_000);
        // p25 is the fourth of fourteen, p75 the eleventh: the first of 9 ms.
        assert_eq!(figures.middle_half_nanos, 4_000_000);
    }

    #[test]
    fn middle_half_is_between_hazens_quartiles() {
        for (samples, width) in [
            (&[][..], 0),
            (&[1, 2, 3, 9], 0),
            (&[7; 5], 1),
            // At 0.75 and 3.25, at 1 and 4, at 1.25 and 4.75, at 1.5 and 5.5.
            (&[10, 50, 20, 40, 30], 25),
            (&[10, 20, 30, 40, 50, 900], 30),
            (&[10, 20, 30, 40, 50, 60, 900], 35),
            (&[10, 20, 30, 40, 50, 60, 70, 80], 40),
        ] {
            assert_eq!(middle_half(samples.to_vec()), width, "{samples:?}");
        }
    }

    #[test]
    fn a_probe_of_several_samples_is_one_window() {
        let (mut pair, now) = (Pair::default(), Instant::now());
        for n in 1..=5 {
            pair.sample(nanos(n), 1, now, now);
        }
        assert_eq!(pair.figures(now).window_nanos, [3]);
        let later = now + 999 * MS;
        pair.sample(nanos(6), 2, now, later);
        assert_eq!(pair.figures(later).window_nanos, [4]);
        let later = now + 1_000 * MS;
        pair.sample(nanos(7), 3, now, later);
        assert_eq!(pair.figures(later).window_nanos, [5, 4]);
        pair.sample(nanos(8), 4, now, later + 999 * MS);
        assert_eq!(pair.figures(later).window_nanos, [6, 4]);
    }

    #[test]
    fn three_losses_in_a_row_are_unreachable_and_an_answer_ends_it() {
        let (mut pair, start) = (Pair::default(), Instant::now());
        pair.refresh = Some(2_000 * MS);
        let at = |n: u32| start + n * 100 * MS;
        assert_eq!(pair.state(start), State::Stale);
        pair.sample(MS, 1, at(1), at(1));
        assert_eq!((pair.lost(2, at(2)), pair.lost(3, at(3))), (1, 2));
        assert_eq!((pair.lost(3, at(3)), pair.lost(9, at(0))), (2, 2));
        assert_eq!(pair.state(at(4)), State::Measured);
        assert_eq!(pair.lost(4, at(4)), 3);
        assert_eq!(pair.state(at(5)), State::Unreachable);
        pair.answered();
        assert_eq!(pair.state(at(5)), State::Measured);
        assert_eq!(pair.state(at(42)), State::Stale);
    }

    #[test]
    fn losses_where_a_target_no_longer_is_do_not_count() {
        let (mut pair, start) = (Pair::default(), Instant::now());
        let at = |n: u32| start + n * 100 * MS;
        assert_eq!((pair.lost(1, at(1)), pair.lost(2, at(2))), (1, 2));
        pair.moved(at(4));
        assert_eq!((pair.losses(), pair.lost(3, at(3))), (0, 0));
        assert!(!pair.sample(MS, 3, at(3), at(5)));
        assert_eq!(pair.lost(4, at(4)), 1);
        assert!(pair.sample(MS, 5, at(5), at(5)));
    }

    #[test]
    fn by_tcp_the_pair_is_measured_until_udp_comes_back() {
        let (mut pair, now) = (Pair::default(), Instant::now());
        for visit in 1..=3 {
            pair.lost(visit, now);
        }
        assert_eq!(pair.state(now), State::Unreachable);
        assert!(pair.connected(2 * MS, 4, now, now));
        assert!(pair.is_fallback());
        assert_eq!(pair.state(now), State::Measured);
        pair.sample(MS, 5, now, now);
        assert!(!pair.is_fallback());
    }

    #[test]
    fn a_connect_since_the_first_loss_is_used_once() {
        let (mut pair, start) = (Pair::default(), Instant::now());
        pair.offer_connect((MS, start));
        assert_eq!(pair.take_connect(), None, "nothing was lost");
        pair.want_connect(start + 10 * MS);
        pair.offer_connect((MS, start + 9 * MS));
        assert_eq!(pair.take_connect(), None, "from before the loss");
        let good = (MS, start + 10 * MS);
        pair.offer_connect(good);
        assert_eq!(pair.take_connect(), Some(good));
        assert_eq!(pair.take_connect(), None, "used");
        pair.offer_connect(good);
        pair.want_connect(start + 20 * MS);
        assert_eq!(pair.take_connect(), None, "of another row");
        pair.offer_connect((MS, start + 20 * MS));
        pair.moved(start + 30 * MS);
        assert_eq!(pair.take_connect(), None, "of another address");
    }

    #[test]
    fn figures_are_of_echoes_or_of_connects_never_of_both() {
        let (mut pair, start) = (Pair::default(), Instant::now());
        let at = |visit: u64| start + 1_000 * MS * visit as u32;
        for visit in 1..=6 {
            pair.sample(MS, visit, at(visit), at(visit));
        }
        assert!(!pair.figures(at(6)).connect);
        assert!(!pair.connected(Duration::ZERO, 7, at(7), at(7)), "refused");
        assert_eq!(pair.figures(at(7)).samples, 6, "and nothing is lost for it");
        for visit in 7..=8 {
            pair.connected(5 * MS, visit, at(visit), at(visit));
        }
        let figures = pair.figures(at(8));
        assert_eq!((figures.connect, figures.samples), (true, 2));
        assert_eq!(
            (figures.window_nanos.len(), figures.p50_nanos),
            (2, 5_000_000)
        );
        pair.answered();
        assert!(pair.figures(at(8)).connect && !pair.is_fallback());
        pair.sample(MS, 9, at(9), at(9));
        let figures = pair.figures(at(9));
        assert_eq!((figures.connect, figures.samples), (false, 1));
        assert_eq!(
            (figures.window_nanos, figures.p95_nanos),
            (vec![1_000_000], 1_000_000)
        );
    }

    #[test]
    fn samples_out_of_range_are_refused_and_figures_are_samples() {
        proptest!(|(samples in proptest::collection::vec(0_u64..12_000_000_000, 0..200))| {
            let (mut pair, now) = (Pair::default(), Instant::now());
            let mut taken = Vec::new();
            for (visit, sample) in samples.into_iter().enumerate() {
                let good = (1..=10_000_000_000).contains(&sample);
                prop_assert_eq!(pair.sample(nanos(sample), visit as u64 + 1, now, now), good);
                taken.extend(good.then_some(sample));
            }
            let last = &taken[taken.len().saturating_sub(MAX_SAMPLES)..];
            let figures = pair.figures(now);
            prop_assert_eq!(figures.samples as usize, last.len());
            prop_assert!(figures.window_nanos.len() <= MAX_WINDOWS);
            if !last.is_empty() {
                let below = last.iter().filter(|s| **s <= figures.p95_nanos).count();
                prop_assert!(below * 100 >= last.len() * 95);
                prop_assert!(figures.p50_nanos <= figures.p95_nanos);
                prop_assert!(last.contains(&figures.p50_nanos));
            }
            prop_assert_eq!(figures.middle_half_nanos > 0, last.len() >= WINDOW_SAMPLES);
            prop_assert!(figures.middle_half_nanos <= figures.p95_nanos);
        });
    }
}
