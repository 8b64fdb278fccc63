//! Limits the agent's answers: it answers each packet once, each source up to a rate, and a bounded
//! number of sources.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hashbrown::{HashMap, hash_map::Entry};

/// The rate of answers to one source in the long run, per second.
const SOURCE_ANSWERS_PER_SECOND: f64 = 20.0;
/// The greatest number of answers to one source at once: the provider may have a node probe many
/// others within a second.
const SOURCE_BURST_ANSWERS: f64 = 400.0;
/// The rate of answers to all sources in the long run, per second.
const TOTAL_ANSWERS_PER_SECOND: f64 = 5_000.0;
/// The greatest number of answers to all sources at once.
const TOTAL_BURST_ANSWERS: f64 = 20_000.0;
/// The greatest number of sources that the limiter remembers.
const MAX_SOURCES: usize = 16_384;
/// The time without a new request after which a source is forgotten.
const SOURCE_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of processes of one source that are checked for replays: the processes before and
/// after a restart.
const SESSIONS_PER_SOURCE: usize = 2;
/// The number of a session's packets that are remembered to detect replays.
const WINDOW_PACKETS: usize = 64;

/// The number of random low bits of a session's number. The bits above them are the start time of
/// its process, in milliseconds since 1970.
const RANDOM_BITS: u32 = 20;

/// Returns the number of a new session; a later process has a higher number.
pub fn session(start: SystemTime, random: u64) -> u64 {
    let since = start.duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    (millis << RANDOM_BITS) | (random & ((1 << RANDOM_BITS) - 1))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestDecision {
    Answer,
    Replayed,
    Limited,
}

/// A token bucket, which fills with time.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    left: f64,
    at: Instant,
    rate: f64,
    burst: f64,
}

impl Bucket {
    /// Returns a full bucket, which gives `burst` tokens at once and then `rate` tokens per second.
    pub fn new(rate: f64, burst: f64, now: Instant) -> Self {
        Self {
            left: burst,
            at: now,
            rate,
            burst,
        }
    }

    pub fn take(&mut self, count: f64, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + elapsed * self.rate).min(self.burst);
        self.at = now;
        let enough = self.left >= count;
        if enough {
            self.left -= count;
        }
        enough
    }
}

/// The last sequence numbers of a session, each of which passes once. An initiator numbers its
/// packets to all responders together, so one responder sees only some of the numbers.
#[derive(Debug, Default)]
struct Window {
    session: u64,
    seen: Vec<u64>,
    floor: u64,
}

impl Window {
    fn first(&mut self, sequence: u64) -> bool {
        let place = match self.seen.binary_search(&sequence) {
            Err(place) if sequence > self.floor => place,
            _ => return false,
        };
        self.seen.insert(place, sequence);
        if self.seen.len() > WINDOW_PACKETS {
            self.floor = self.seen.remove(0);
        }
        true
    }
}

#[derive(Debug)]
struct Source {
    bucket: Bucket,
    windows: [Window; SESSIONS_PER_SOURCE],
}

impl Source {
    fn first(&mut self, session: u64, sequence: u64, now: Instant) -> bool {
        // The source's clock may have been set back.
        if now.saturating_duration_since(self.bucket.at) >= SOURCE_IDLE_TIMEOUT {
            self.windows = Default::default();
        }
        let known = |w: &Window| !w.seen.is_empty() && w.session == session;
        if let Some(at) = self.windows.iter().position(known) {
            return self.windows[at].first(sequence);
        }
        let newest = &self.windows[0];
        if !newest.seen.is_empty() && session < newest.session {
            return false;
        }
        self.windows.rotate_right(1);
        self.windows[0] = Window {
            session,
            ..Window::default()
        };
        self.windows[0].first(sequence)
    }
}

#[derive(Debug)]
pub struct RequestLimiter {
    known: HashMap<u64, Source>,
    all: Bucket,
    swept: Instant,
}

impl RequestLimiter {
    pub fn new(now: Instant) -> Self {
        Self {
            known: HashMap::new(),
            all: Bucket::new(TOTAL_ANSWERS_PER_SECOND, TOTAL_BURST_ANSWERS, now),
            swept: now,
        }
    }

    /// Decides on an authentic request; replays do not use up the source's rate.
    pub fn decide(
        &mut self,
        source: u64,
        session: u64,
        sequence: u64,
        now: Instant,
    ) -> RequestDecision {
        let full = self.known.len() >= MAX_SOURCES;
        if full && now.saturating_duration_since(self.swept) > SOURCE_IDLE_TIMEOUT / 6 {
            self.swept = now;
            self.known
                .retain(|_, s| now.saturating_duration_since(s.bucket.at) < SOURCE_IDLE_TIMEOUT);
        }
        let full = self.known.len() >= MAX_SOURCES;
        let known = match self.known.entry(source) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if full => return RequestDecision::Limited,
            Entry::Vacant(free) => free.insert(Source {
                bucket: Bucket::new(SOURCE_ANSWERS_PER_SECOND, SOURCE_BURST_ANSWERS, now),
                windows: Default::default(),
            }),
        };
        if !known.first(session, sequence, now) {
            return RequestDecision::Replayed;
        }
        if known.bucket.take(1.0, now) && self.all.take(1.0, now) {
            RequestDecision::Answer
        } else {
            RequestDecision::Limited
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sequence_passes_once_and_none_below_the_last_64() {
        proptest!(|(sequences in proptest::collection::vec(1_u64..500, 1..600))| {
            let (mut window, mut passed) = (Window::default(), BTreeSet::new());
            for sequence in sequences {
                let low = passed.iter().rev().nth(WINDOW_PACKETS);
                let below = low.is_some_and(|low| sequence <= *low);
                let first = window.first(sequence);
                prop_assert_eq!(first, !below && passed.insert(sequence));
            }
            prop_assert!(window.seen.len() <= WINDOW_PACKETS);
        });
    }

    #[test]
    fn a_session_of_before_stays_replayed() {
        let now = Instant::now();
        let mut sources = RequestLimiter::new(now);
        assert_eq!(sources.decide(1, 10, 1, now), RequestDecision::Answer);
        assert_eq!(sources.decide(1, 11, 1, now), RequestDecision::Answer);
        assert_eq!(sources.decide(1, 10, 1, now), RequestDecision::Replayed);
        assert_eq!(sources.decide(1, 11, 1, now), RequestDecision::Replayed);
        assert_eq!(sources.decide(2, 10, 1, now), RequestDecision::Answer);
    }

    #[test]
    fn of_four_sessions_the_two_newest_pass_until_all_are_silent() {
        let now = Instant::now();
        let mut sources = RequestLimiter::new(now);
        for session in 11..=14 {
            assert_eq!(sources.decide(1, session, 1, now), RequestDecision::Answer);
        }
        for session in [10, 11, 12] {
            assert_eq!(
                sources.decide(1, session, 2, now),
                RequestDecision::Replayed
            );
        }
        for session in [13, 14] {
            assert_eq!(sources.decide(1, session, 2, now), RequestDecision::Answer);
        }
        let half = now + SOURCE_IDLE_TIMEOUT / 2;
        assert_eq!(sources.decide(1, 5, 3, half), RequestDecision::Replayed);
        let later = now + SOURCE_IDLE_TIMEOUT;
        assert_eq!(sources.decide(1, 5, 3, later), RequestDecision::Answer);
        assert_eq!(sources.decide(1, 4, 3, later), RequestDecision::Replayed);
    }

    #[test]
    fn a_later_process_has_a_higher_session() {
        let at = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        let now = 1_800_000_000_000;
        assert!(session(at(now), u64::MAX) < session(at(now + 1), 0));
        assert_ne!(session(at(now), 1), session(at(now), 2));
        assert_eq!(session(at(now), 7) >> RANDOM_BITS, now);
    }

    #[test]
    fn a_source_at_100_times_its_rate_gets_its_burst_and_its_rate() {
        let start = Instant::now();
        let mut sources = RequestLimiter::new(start);
        let mut answered = 0;
        for n in 0..10_000 {
            let now = start + Duration::from_micros(500) * n;
            match sources.decide(1, 1, u64::from(n) + 1, now) {
                RequestDecision::Answer => answered += 1,
                verdict => assert_eq!(verdict, RequestDecision::Limited),
            }
        }
        assert!((499..=501).contains(&answered), "{answered}");
        let later = start + Duration::from_secs(5);
        assert_eq!(sources.decide(2, 1, 1, later), RequestDecision::Answer);
    }

    #[test]
    fn the_table_has_a_bound_and_makes_room_for_new_sources() {
        let start = Instant::now();
        let mut sources = RequestLimiter::new(start);
        for source in 0..MAX_SOURCES as u64 {
            let now = start + Duration::from_micros(250) * source as u32;
            assert_eq!(
                sources.decide(source + 1, 1, 1, now),
                RequestDecision::Answer
            );
        }
        let late = start + Duration::from_secs(5);
        assert_eq!(
            sources.decide(1 << 40, 1, 1, late),
            RequestDecision::Limited
        );
        assert_eq!(sources.known.len(), MAX_SOURCES);
        let later = start + SOURCE_IDLE_TIMEOUT * 2;
        assert_eq!(
            sources.decide(1 << 40, 1, 1, later),
            RequestDecision::Answer
        );
        assert!(sources.known.len() < MAX_SOURCES);
    }
}
