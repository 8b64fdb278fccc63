//! How often an agent may speak.

use std::time::Duration;

use tokio::time::Instant;

/// Messages a second, over time: an agent sends one every 2 s, and answers.
const PER_SECOND: u32 = 5;
/// Messages at once.
const BURST: u32 = 20;

/// A leaking bucket.
#[derive(Debug)]
pub(super) struct Limit {
    /// When the bucket will be empty again.
    empty: Instant,
}

impl Limit {
    pub fn new(now: Instant) -> Self {
        Self { empty: now }
    }

    /// Notes a message; says how long the next one has to wait.
    pub fn note(&mut self, now: Instant) -> Duration {
        self.empty = self.empty.max(now) + Duration::from_secs(1) / PER_SECOND;
        let full = Duration::from_secs(1) / PER_SECOND * BURST;
        self.empty.duration_since(now).saturating_sub(full)
    }
}

#[test]
fn bursts_pass_and_floods_wait() {
    let now = Instant::now();
    let mut limit = Limit::new(now);
    assert!((0..BURST).all(|_| limit.note(now).is_zero()));
    assert_eq!(limit.note(now), Duration::from_millis(200));
    assert_eq!(limit.note(now), Duration::from_millis(400));
    let later = now + Duration::from_secs(10);
    assert!(limit.note(later).is_zero());

    // One every two seconds never waits; fifty a second are held to five.
    let mut honest = Limit::new(now);
    assert!((0..1000).all(|i| honest.note(now + Duration::from_secs(2 * i)).is_zero()));
    let (mut flood, mut at, mut sent) = (Limit::new(now), now, 0);
    while at < now + Duration::from_secs(60) {
        at += flood.note(at).max(Duration::from_millis(20));
        sent += 1;
    }
    assert!((300..=330).contains(&sent), "{sent}");
}
