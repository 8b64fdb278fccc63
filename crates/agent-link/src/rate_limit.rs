use std::time::Duration;

use tokio::time::Instant;

/// The long-run rate of an agent's messages. An agent sends one every 2 s, and answers to its
/// provider.
const MESSAGES_PER_SECOND: u32 = 5;
/// The number of messages that pass at once, without a wait.
const BURST_MESSAGES: u32 = 20;

/// Limits the rate at which an agent's messages are read.
#[derive(Debug)]
pub struct RateLimit {
    empty_at: Instant,
}

impl RateLimit {
    /// Creates a limit that lets a whole burst pass at first.
    pub fn new(now: Instant) -> Self {
        Self { empty_at: now }
    }

    /// Records a message, and returns the time to wait before the next one is read.
    pub fn record(&mut self, now: Instant) -> Duration {
        self.empty_at = self.empty_at.max(now) + Duration::from_secs(1) / MESSAGES_PER_SECOND;
        let full = Duration::from_secs(1) / MESSAGES_PER_SECOND * BURST_MESSAGES;
        self.empty_at.duration_since(now).saturating_sub(full)
    }
}

#[test]
fn bursts_pass_and_floods_wait() {
    let now = Instant::now();
    let mut limit = RateLimit::new(now);
    assert!((0..BURST_MESSAGES).all(|_| limit.record(now).is_zero()));
    assert_eq!(limit.record(now), Duration::from_millis(200));
    assert_eq!(limit.record(now), Duration::from_millis(400));
    let later = now + Duration::from_secs(10);
    assert!(limit.record(later).is_zero());

    let mut honest = RateLimit::new(now);
    assert!((0..1000).all(|i| honest.record(now + Duration::from_secs(2 * i)).is_zero()));
    let (mut flood, mut at, mut sent) = (RateLimit::new(now), now, 0);
    while at < now + Duration::from_secs(60) {
        at += flood.record(at).max(Duration::from_millis(20));
        sent += 1;
    }
    assert!((300..=330).contains(&sent), "{sent}");
}
