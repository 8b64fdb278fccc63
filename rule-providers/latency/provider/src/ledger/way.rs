//! The way from one node to another, as the first one's agent told it.

use std::{cmp::Reverse, time::Duration};

use tautline_proto::latency::{Pair, State};

use crate::reading::{Figure, Reading};

/// Samples above are garbage.
const LONGEST: Duration = Duration::from_secs(10);
/// The first losses of a stream may be from before what mended the network; and an
/// agent that has come (again) was not there to answer before.
const SETTLES: Duration = Duration::from_secs(5);
/// A pair that is visited less often is worth a probe before it is given up.
const SELDOM: Duration = Duration::from_secs(5);
/// An agent is there while its frames come; it sends one every 2 s.
pub(super) const QUIET: Duration = Duration::from_secs(6);
/// What an agent still measures it tells again every 30 s.
pub(super) const TOLD_AGAIN: Duration = Duration::from_secs(45);
/// A pair that was measured once, for a probe, is taken for visited so often.
const ONCE: Duration = Duration::from_secs(15);
/// And is kept for so long: it was for a question, which has been answered.
const PROBED_KEPT: Duration = Duration::from_secs(60);
/// Agents visit less often only where they were given far too much.
const SLOWEST: Duration = Duration::from_secs(120);
/// Figures are kept for so long after the last sample.
pub(crate) const KEPT: Duration = Duration::from_secs(600);
/// More than this between the directions is flagged.
const APART: f64 = 1.2;

/// A round-trip time in tens of nanoseconds: what is kept of many pairs is small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Span(u32);

impl Span {
    const STEP: u64 = 10;

    /// `None` for what is no round-trip time: not above 0, or above ten seconds.
    fn new(nanos: u64) -> Option<Self> {
        if nanos == 0 || u128::from(nanos) > LONGEST.as_nanos() {
            return None;
        }
        u32::try_from(nanos.div_ceil(Self::STEP)).ok().map(Self)
    }

    fn duration(self) -> Duration {
        Duration::from_nanos(u64::from(self.0) * Self::STEP)
    }
}

/// A time since the ledger began in steps of 20 ms, rounded up: 2.7 years fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u32);

impl Moment {
    const STEP: Duration = Duration::from_millis(20);

    fn new(at: Duration) -> Self {
        let steps = at.as_micros().div_ceil(Self::STEP.as_micros());
        Self(u32::try_from(steps).unwrap_or(u32::MAX))
    }

    pub fn time(self) -> Duration {
        Self::STEP * self.0
    }
}

/// What is kept of a direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    state: State,
    /// Newest first; 0 for none.
    windows: [Span; 3],
    p50: Span,
    p95: Span,
    samples: u16,
    refresh_millis: u32,
    /// The last sample.
    sampled: Moment,
    /// The last time that the agent told of it.
    pub told: Moment,
    /// The state is so since then.
    since: Moment,
    /// It is among the ledger's changes already.
    pub changed: bool,
    /// The figures are of TCP connects.
    connect: bool,
}

/// A frame of the agent that measures a way, as it bears on freshness.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// Its last stream began.
    pub since: Duration,
    /// The last frame.
    pub frame: Duration,
    /// The stream was there then and has not been closed.
    pub open: bool,
}

impl Way {
    /// What a pair in a report says; `None` for garbage. `before` is what was
    /// told of it last.
    pub fn told(pair: &Pair, before: Option<&Self>, now: Duration) -> Option<Self> {
        let state = State::try_from(pair.state).ok()?;
        let age = Duration::from_millis(pair.age_millis.into());
        if pair.window_nanos.len() > 3 {
            return None;
        }
        let mut way = Self {
            state,
            windows: [Span::default(); 3],
            p50: Span::default(),
            p95: Span::default(),
            samples: u16::try_from(pair.samples).unwrap_or(u16::MAX),
            refresh_millis: pair.refresh_millis.min(SLOWEST.as_millis() as u32),
            sampled: Moment::new(now.saturating_sub(age)),
            told: Moment::new(now),
            since: match before {
                Some(before) if before.state == state => before.since,
                _ => Moment::new(now),
            },
            changed: before.is_some_and(|b| b.changed),
            connect: pair.connect,
        };
        if state != State::Measured && pair.window_nanos.is_empty() {
            // No figures of its own: what is known stays, as old as it is.
            if let Some(before) = before {
                let Self {
                    windows,
                    p50,
                    p95,
                    samples,
                    sampled,
                    connect,
                    ..
                } = *before;
                way = Self {
                    windows,
                    p50,
                    p95,
                    samples,
                    sampled,
                    connect,
                    ..way
                };
            } else {
                way.samples = 0;
            }
            return Some(way);
        }
        for (window, nanos) in way.windows.iter_mut().zip(&pair.window_nanos) {
            *window = Span::new(*nanos)?;
        }
        (way.p50, way.p95) = (Span::new(pair.p50_nanos)?, Span::new(pair.p95_nanos)?);
        let sound = way.windows[0].0 > 0 && way.p50 <= way.p95 && way.samples > 0;
        (sound && (age <= KEPT || state != State::Measured)).then_some(way)
    }

    /// The middle of the windows, in microseconds: what a fit is to come near.
    pub fn micros(&self) -> Option<f32> {
        let mut known: Vec<Span> = self.windows.into_iter().filter(|w| w.0 > 0).collect();
        known.sort_unstable();
        let middle = known.get(known.len() / 2)?;
        Some(middle.0 as f32 * Span::STEP as f32 / 1e3)
    }

    /// It was measured for a probe, and is not visited.
    pub fn probed(&self) -> bool {
        self.refresh_millis == 0
    }

    /// It has no figures, and nothing was lost.
    pub fn says_nothing(&self) -> bool {
        self.windows[0].0 == 0 && self.state != State::Unreachable
    }

    fn kept(&self) -> Duration {
        if self.probed() { PROBED_KEPT } else { KEPT }
    }

    pub fn refresh(&self) -> Duration {
        match self.refresh_millis {
            0 => ONCE,
            millis => Duration::from_millis(millis.into()),
        }
    }

    /// Until when what the agent told holds, if it tells no more.
    fn holds_until(&self, source: Source) -> Duration {
        let tried = match self.state {
            State::Unreachable => self.told,
            _ => self.sampled,
        };
        let sampled = tried.time() + self.refresh() * 2;
        // While the frames came it was visited, though it had no news.
        let visited = source.frame < self.told.time() + TOLD_AGAIN && self.refresh_millis > 0;
        let quiet = if source.open { QUIET } else { Duration::ZERO };
        match visited {
            true => sampled.max(source.frame + self.refresh().max(quiet)),
            false => sampled,
        }
    }

    /// Whether nothing of it is worth keeping.
    pub fn over(&self, now: Duration) -> bool {
        let seen = match self.state {
            State::Unreachable => self.sampled.max(self.told),
            _ => self.sampled,
        };
        now >= seen.time() + self.kept()
    }

    /// What it says now. `target_since`: the agent at the other end is there since
    /// then; `None` if it has left.
    pub fn reading(
        &self,
        source: Source,
        target_since: Option<Duration>,
        now: Duration,
    ) -> Reading {
        if self.over(now) {
            return Reading::Nothing;
        }
        let holds = now < self.holds_until(source);
        match self.state {
            State::Measured if holds => Reading::Fresh(self.figure(source, now)),
            State::Unreachable if holds && self.counts(source, target_since, now) => {
                Reading::Unreachable {
                    since: now.saturating_sub(self.since.time()),
                    seldom: self.refresh() > SELDOM,
                }
            }
            _ if self.windows[0].0 > 0 && now < self.sampled.time() + self.kept() => {
                Reading::Old(self.figure(source, now))
            }
            _ => Reading::Nothing,
        }
    }

    /// Whether the losses tell of the network. Where no agent listens they do not;
    /// once one does, it must have had the time for a visit, whose outcome has come.
    fn counts(&self, source: Source, target_since: Option<Duration>, now: Duration) -> bool {
        let Some(target) = target_since else {
            return false;
        };
        let news = self.since.time() >= source.since;
        self.told.time() >= target
            && source.frame >= target + self.refresh() + SETTLES
            && (!news || now >= source.since + SETTLES)
    }

    /// Whether its last sample is from after the other was found unreachable.
    pub fn sampled_after(&self, lost: &Self) -> bool {
        self.sampled > lost.since
    }

    fn figure(&self, source: Source, now: Duration) -> Figure {
        let age = now.saturating_sub(self.sampled.time());
        let alive = source.open && now < source.frame + QUIET && self.state == State::Measured;
        let known = self.windows.into_iter().filter(|w| w.0 > 0);
        Figure {
            median: self.windows[0].duration(),
            windows: known.map(Span::duration).collect(),
            p50: self.p50.duration(),
            p95: self.p95.duration(),
            samples: self.samples.into(),
            // Else the agent would have called it stale.
            age: if alive {
                age.min(self.refresh() * 2)
            } else {
                age
            },
            apart: false,
            connect: self.connect,
        }
    }
}

/// Both directions taken together: a loss counts, then the fresher, then echoes
/// before connects, then the larger.
pub(super) fn both(there: Reading, back: Reading) -> Reading {
    use Reading::{Fresh, Nothing, Old, Unreachable};
    match (there, back) {
        (
            Unreachable { since, seldom },
            Unreachable {
                since: b,
                seldom: also,
            },
        ) => Unreachable {
            since: since.max(b),
            seldom: seldom && also,
        },
        (lost @ Unreachable { .. }, _) | (_, lost @ Unreachable { .. }) => lost,
        // Connects and echoes do not compare.
        (Fresh(echo), Fresh(other)) | (Fresh(other), Fresh(echo))
            if other.connect && !echo.connect =>
        {
            Fresh(echo)
        }
        (Fresh(a), Fresh(b)) => {
            let (low, high) = (a.p50.min(b.p50), a.p50.max(b.p50));
            let apart = high.as_secs_f64() > low.as_secs_f64() * APART;
            // Of equals the younger, so that both ways round read the same.
            let size = |f: &Figure| (f.median, Reverse(f.age), f.p95, f.samples);
            let larger = if size(&a) >= size(&b) { a } else { b };
            Fresh(Figure { apart, ..larger })
        }
        (fresh @ Fresh(_), _) | (_, fresh @ Fresh(_)) => fresh,
        (Old(a), Old(b)) => {
            let age = |f: &Figure| (f.age, Reverse(f.median), Reverse(f.p95), f.samples);
            Old(if age(&a) <= age(&b) { a } else { b })
        }
        (old @ Old(_), Nothing) | (Nothing, old) => old,
    }
}
