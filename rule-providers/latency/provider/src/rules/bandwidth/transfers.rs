//! The rates that transfers between nodes reached. Transfers cost bandwidth, so they run rarely,
//! one at a time, in the background, and only if they are allowed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::network::Network;

const TRANSFER_INTERVAL: Duration = Duration::from_secs(3_600);
const RETRY_PAUSE: Duration = Duration::from_secs(300);
const MAX_PAIRS: usize = 10_000;
/// The maximum size of a transfer, in bytes, which takes 54 ms at 10 Gbit/s.
const MAX_TRANSFER_BYTES: u64 = 64 << 20;
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(3);

type Pair = (String, String);

#[derive(Clone, Copy, Debug)]
struct Transfer {
    next: Instant,
    result: Option<(u64, Instant)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Transfers {
    pairs: Arc<Mutex<HashMap<Pair, Transfer>>>,
    permit: Arc<Semaphore>,
}

impl Default for Transfers {
    fn default() -> Self {
        Self {
            pairs: Arc::default(),
            permit: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Transfers {
    /// Returns the last result of the last two hours, in bits per second. Starts a transfer if one
    /// is due.
    pub(crate) fn result(&self, network: &Network, a: &str, b: &str) -> Option<u64> {
        let now = Instant::now();
        let pair = (a.min(b).to_owned(), a.max(b).to_owned());
        let known = self.pairs.lock().get(&pair).copied();
        if known.is_none_or(|t| now >= t.next) {
            self.start(network, pair, now);
        }
        let (bits, at) = known?.result?;
        (now.saturating_duration_since(at) < 2 * TRANSFER_INTERVAL).then_some(bits)
    }

    fn start(&self, network: &Network, pair: Pair, now: Instant) {
        let (Ok(runtime), Ok(permit)) = (
            tokio::runtime::Handle::try_current(),
            Arc::clone(&self.permit).try_acquire_owned(),
        ) else {
            return;
        };
        let (all, network) = (self.clone(), network.clone());
        all.record(&pair, now + TRANSFER_INTERVAL, None);
        runtime.spawn(async move {
            let (a, b) = &pair;
            let result = network
                .throughput(a, b, MAX_TRANSFER_BYTES, TRANSFER_TIMEOUT)
                .await;
            let now = Instant::now();
            match result {
                Ok(bits) => all.record(&pair, now + TRANSFER_INTERVAL, Some((bits, now))),
                Err(why) => {
                    tracing::debug!(a, b, why, "no transfer");
                    all.record(&pair, now + RETRY_PAUSE, None);
                }
            }
            drop(permit);
        });
    }

    fn record(&self, pair: &Pair, next: Instant, result: Option<(u64, Instant)>) {
        let mut pairs = self.pairs.lock();
        if pairs.len() >= MAX_PAIRS && !pairs.contains_key(pair) {
            let now = Instant::now();
            pairs.retain(|_, t| now < t.next);
            if pairs.len() >= MAX_PAIRS {
                return;
            }
        }
        let result = result.or_else(|| pairs.get(pair)?.result);
        pairs.insert(pair.clone(), Transfer { next, result });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn result_is_available_to_the_next_question() {
        let (network, transfers) = (Network::default(), Transfers::default());
        network.fixed.set_throughput("a", "b", Ok(7));
        assert_eq!(transfers.result(&network, "a", "b"), None);
        let deadline = Instant::now() + Duration::from_secs(10);
        while transfers.result(&network, "b", "a") != Some(7) {
            assert!(Instant::now() < deadline, "{transfers:?}");
            tokio::task::yield_now().await;
        }
        network.fixed.set_throughput("a", "b", Ok(8));
        assert_eq!(transfers.result(&network, "a", "b"), Some(7));
        assert_eq!(transfers.permit.available_permits(), 1);
    }

    #[tokio::test]
    async fn failed_transfer_is_retried_sooner() {
        let (network, transfers) = (Network::default(), Transfers::default());
        assert_eq!(transfers.result(&network, "a", "b"), None);
        drop(transfers.permit.acquire().await.unwrap());
        let known: Vec<Transfer> = transfers.pairs.lock().values().copied().collect();
        let next = known[0].next.saturating_duration_since(Instant::now());
        assert!(next > RETRY_PAUSE / 2 && next <= RETRY_PAUSE, "{next:?}");
    }
}
