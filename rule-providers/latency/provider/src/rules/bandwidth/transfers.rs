//! The rates that transfers between nodes reached. Transfers cost bandwidth, so they run rarely,
//! one at a time, in the background, and only if they are allowed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::sleep};

use crate::network::Network;

const TRANSFER_INTERVAL: Duration = Duration::from_secs(3_600);
/// The pause of a node after a transfer, and of a pair after a failed one.
const NODE_PAUSE: Duration = Duration::from_secs(300);
/// The pause of all nodes after a transfer.
const TRANSFER_PAUSE: Duration = Duration::from_secs(10);
const MAX_PAIRS: usize = 10_000;
/// The maximum size of a transfer, in bytes, which takes 54 ms at 10 Gbit/s.
const MAX_TRANSFER_BYTES: u64 = 64 << 20;
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(3);

type Pair = (String, String);

#[derive(Clone, Copy, Debug)]
struct Transfer {
    began: Instant,
    /// The last rate in bits per second, and its time.
    result: Option<(u64, Instant)>,
    failed: bool,
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

impl Transfer {
    fn is_due(&self, now: Instant) -> bool {
        let pause = if self.failed {
            NODE_PAUSE
        } else {
            TRANSFER_INTERVAL
        };
        now >= self.began + pause
    }
}

impl Transfers {
    /// Returns the last result of the last two hours, in bits per second. Starts a transfer if one
    /// is due.
    pub(crate) fn result(&self, network: &Arc<Network>, a: &str, b: &str) -> Option<u64> {
        if !network.allows_transfers {
            return None;
        }
        let now = Instant::now();
        let pair = (a.min(b).to_owned(), a.max(b).to_owned());
        let known = self.pairs.lock().get(&pair).copied();
        if known.is_none_or(|t| t.is_due(now)) {
            self.start(network, pair, now);
        }
        let (bits, at) = known?.result?;
        (now.saturating_duration_since(at) < 2 * TRANSFER_INTERVAL).then_some(bits)
    }

    fn start(&self, network: &Arc<Network>, pair: Pair, now: Instant) {
        let (Ok(runtime), Ok(permit)) = (
            tokio::runtime::Handle::try_current(),
            Arc::clone(&self.permit).try_acquire_owned(),
        ) else {
            return;
        };
        if !self.begin(&pair, now) {
            return;
        }
        let (all, network) = (self.clone(), Arc::clone(network));
        runtime.spawn(async move {
            let (a, b) = &pair;
            let done = network.transfer(a, b, MAX_TRANSFER_BYTES, TRANSFER_TIMEOUT);
            let result = done.await;
            if let Some(transfer) = all.pairs.lock().get_mut(&pair) {
                match &result {
                    Ok(bits) => transfer.result = Some((*bits, Instant::now())),
                    Err(_) => transfer.failed = true,
                }
            }
            if let Err(why) = result {
                tracing::debug!(a, b, %why, "no transfer");
            }
            sleep(TRANSFER_PAUSE).await;
            drop(permit);
        });
    }

    /// Records the begin of a transfer; returns false if one of its nodes has its pause, or if
    /// there are too many pairs.
    fn begin(&self, pair: &Pair, now: Instant) -> bool {
        let (a, b) = pair;
        let mut pairs = self.pairs.lock();
        if pairs.len() >= MAX_PAIRS && !pairs.contains_key(pair) {
            pairs.retain(|_, t| !t.is_due(now));
        }
        let paused = pairs.iter().any(|((x, y), t)| {
            now < t.began + NODE_PAUSE && [x, y].iter().any(|n| *n == a || *n == b)
        });
        if paused || pairs.len() >= MAX_PAIRS && !pairs.contains_key(pair) {
            return false;
        }
        let transfer = Transfer {
            began: now,
            result: pairs.get(pair).and_then(|t| t.result),
            failed: false,
        };
        pairs.insert(pair.clone(), transfer);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::{AnsweringAgent, network_of};

    #[tokio::test]
    async fn result_is_available_to_the_next_question() {
        let (network, transfers) = (network_of(&["a", "b"]), Transfers::default());
        let agents = ["a", "b"].map(|node| AnsweringAgent::connect(&network, node));
        let set = |rate| {
            agents[0]
                .rate
                .store(rate, std::sync::atomic::Ordering::Relaxed)
        };
        set(7);
        assert_eq!(transfers.result(&network, "a", "b"), None);
        let deadline = Instant::now() + Duration::from_secs(10);
        while transfers.result(&network, "b", "a") != Some(7) {
            assert!(Instant::now() < deadline, "{transfers:?}");
            tokio::task::yield_now().await;
        }
        set(8);
        assert_eq!(transfers.result(&network, "a", "b"), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_transfer_is_retried_sooner() {
        let (network, transfers) = (network_of(&["a", "b"]), Transfers::default());
        assert_eq!(transfers.result(&network, "a", "b"), None);
        drop(transfers.permit.acquire().await.unwrap());
        let known: Vec<Transfer> = transfers.pairs.lock().values().copied().collect();
        let (before, after) = (NODE_PAUSE - TRANSFER_TIMEOUT, NODE_PAUSE);
        assert!(
            !known[0].is_due(known[0].began + before) && known[0].is_due(known[0].began + after)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn transfers_keep_their_pauses() {
        let (network, transfers) = (network_of(&[]), Transfers::default());
        let begin = |a: &str, b: &str, seconds| {
            let now = Instant::now() + Duration::from_secs(seconds);
            transfers.begin(&(a.to_owned(), b.to_owned()), now)
        };
        assert!(begin("a", "b", 0));
        assert!(begin("c", "d", 10));
        assert!(!begin("a", "e", 299), "a had one");
        assert!(begin("a", "e", 301));
        // One at a time, and ten seconds apart.
        transfers.start(&network, ("x".to_owned(), "y".to_owned()), Instant::now());
        assert_eq!(transfers.permit.available_permits(), 0);
        sleep(TRANSFER_PAUSE / 2).await;
        assert_eq!(transfers.permit.available_permits(), 0);
        sleep(TRANSFER_PAUSE).await;
        assert_eq!(transfers.permit.available_permits(), 1);
    }
}
