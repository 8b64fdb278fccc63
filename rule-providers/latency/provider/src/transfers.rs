//! What transfers between nodes carried. They cost bandwidth, so they are seldom,
//! one at a time, in the background, and only where the network allows them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::network::Network;

/// Between two transfers of a pair.
const EVERY: Duration = Duration::from_secs(3_600);
/// Before another try, if one failed or was not allowed.
const AGAIN: Duration = Duration::from_secs(300);
/// Pairs that are kept, at the most.
const MOST: usize = 10_000;
/// 54 ms at 10 Gbit/s.
const MAX_BYTES: u64 = 64 << 20;
const WITHIN: Duration = Duration::from_secs(3);

type Pair = (String, String);

#[derive(Clone, Copy, Debug)]
struct Transfer {
    /// No transfer before then.
    next: Instant,
    /// What the last one carried, in bits a second, and when.
    carried: Option<(u64, Instant)>,
}

/// Keeps results, and asks for new ones. Clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Transfers {
    pairs: Arc<Mutex<HashMap<Pair, Transfer>>>,
    one: Arc<Semaphore>,
}

impl Default for Transfers {
    fn default() -> Self {
        Self {
            pairs: Arc::default(),
            one: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Transfers {
    /// What the last transfer of two hours carried, in bits a second. Has the pair
    /// measured anew if that is due.
    pub(crate) fn carried(&self, network: &Network, a: &str, b: &str) -> Option<u64> {
        let now = Instant::now();
        let pair = (a.min(b).to_owned(), a.max(b).to_owned());
        let known = self.pairs.lock().get(&pair).copied();
        if known.is_none_or(|t| now >= t.next) {
            self.start(network, pair, now);
        }
        let (bits, at) = known?.carried?;
        (now.saturating_duration_since(at) < 2 * EVERY).then_some(bits)
    }

    fn start(&self, network: &Network, pair: Pair, now: Instant) {
        let (Ok(runtime), Ok(permit)) = (
            tokio::runtime::Handle::try_current(),
            Arc::clone(&self.one).try_acquire_owned(),
        ) else {
            return;
        };
        let (all, network) = (self.clone(), network.clone());
        all.note(&pair, now + EVERY, None);
        runtime.spawn(async move {
            let (a, b) = &pair;
            let carried = network.throughput(a, b, MAX_BYTES, WITHIN).await;
            let now = Instant::now();
            match carried {
                Ok(bits) => all.note(&pair, now + EVERY, Some((bits, now))),
                Err(why) => {
                    tracing::debug!(a, b, why, "no transfer");
                    all.note(&pair, now + AGAIN, None);
                }
            }
            drop(permit);
        });
    }

    fn note(&self, pair: &Pair, next: Instant, carried: Option<(u64, Instant)>) {
        let mut pairs = self.pairs.lock();
        if pairs.len() >= MOST && !pairs.contains_key(pair) {
            let now = Instant::now();
            pairs.retain(|_, t| now < t.next);
            if pairs.len() >= MOST {
                return;
            }
        }
        let kept = pairs.get(pair).and_then(|t| t.carried);
        let carried = carried.or(kept);
        pairs.insert(pair.clone(), Transfer { next, carried });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_result_is_there_for_the_next_question() {
        let (network, transfers) = (Network::default(), Transfers::default());
        network.set_throughput("a", "b", Ok(7));
        assert_eq!(transfers.carried(&network, "a", "b"), None);
        let deadline = Instant::now() + Duration::from_secs(10);
        while transfers.carried(&network, "b", "a") != Some(7) {
            assert!(Instant::now() < deadline, "{transfers:?}");
            tokio::task::yield_now().await;
        }
        // It is not asked for again for an hour.
        network.set_throughput("a", "b", Ok(8));
        assert_eq!(transfers.carried(&network, "a", "b"), Some(7));
        assert_eq!(transfers.one.available_permits(), 1);
    }

    #[tokio::test]
    async fn one_that_fails_is_tried_again_sooner() {
        let (network, transfers) = (Network::default(), Transfers::default());
        assert_eq!(transfers.carried(&network, "a", "b"), None);
        // The permit comes back once the result is noted.
        drop(transfers.one.acquire().await.unwrap());
        let known: Vec<Transfer> = transfers.pairs.lock().values().copied().collect();
        let next = known[0].next.saturating_duration_since(Instant::now());
        assert!(next > AGAIN / 2 && next <= AGAIN, "{next:?}");
    }
}
