//! The wait before a watch restarts.

use std::time::Duration;

use kube_runtime::{utils::Backoff, watcher::DefaultBackoff};

/// The longest wait. kube's waits go up to 30 s: after an outage of a minute they would leave a
/// process half a minute behind an API server that answers again.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The waits of kube's backoff, which start at 0.8 s and double, but at most 5 s each.
#[derive(Default)]
pub struct WatchBackoff(DefaultBackoff);

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|wait| wait.min(MAX_WAIT))
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_five_seconds() {
        let mut backoff = WatchBackoff::default();
        let waits: Vec<Duration> = backoff.by_ref().take(30).collect();
        assert!(waits[0] < Duration::from_secs(2), "{waits:?}");
        assert!(waits[5..].iter().all(|w| *w == MAX_WAIT), "{waits:?}");
        backoff.reset();
        assert!(backoff.next().is_some_and(|w| w < Duration::from_secs(2)));
    }
}
