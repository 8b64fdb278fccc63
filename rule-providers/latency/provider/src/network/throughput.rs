use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::timeout;

use super::{
    measured_pairs::MeasuredPairs,
    orders::{Orders, RETURN_TIME},
    sessions::Order,
};

const TRANSFER_PAUSE: Duration = Duration::from_secs(10);
const NODE_PAUSE: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(crate) struct ThroughputTests {
    allowed: bool,
    pairs: Arc<MeasuredPairs>,
    orders: Arc<Orders>,
    last: Mutex<HashMap<Box<str>, Duration>>,
}

impl ThroughputTests {
    pub fn new(allowed: bool, pairs: Arc<MeasuredPairs>, orders: Arc<Orders>) -> Self {
        Self {
            allowed,
            pairs,
            orders,
            last: Mutex::default(),
        }
    }

    pub async fn run(
        &self,
        from: &str,
        to: &str,
        max_bytes: u64,
        within: Duration,
    ) -> Result<u64, String> {
        if !self.allowed {
            return Err("transfers are not allowed here (--allow-transfers)".to_owned());
        }
        let ends = {
            let store = self.pairs.lock();
            store.id(from).zip(store.id(to))
        };
        let (source, target) = ends.ok_or_else(|| format!("no agents on {from} and {to}"))?;
        self.reserve(from, to, self.pairs.now())?;
        let order = self.orders.send(source, |id| Order::Transfer {
            id,
            to: target,
            max_bytes,
            within: within.saturating_sub(RETURN_TIME),
        });
        let mut order = order.ok_or_else(|| format!("the agent on {from} takes no orders now"))?;
        match timeout(within, &mut order.answer).await {
            Ok(Ok(Some(done))) if done.bits_per_second > 0 => Ok(done.bits_per_second),
            Ok(Ok(Some(done))) => Err(done.error.chars().take(200).collect()),
            Ok(_) => Err(format!("the agent on {from} has gone")),
            Err(_) => Err(format!(
                "no answer from the agent on {from} within {within:?}"
            )),
        }
    }

    fn reserve(&self, from: &str, to: &str, now: Duration) -> Result<(), String> {
        let mut last = self.last.lock();
        last.retain(|_, at| now < *at + NODE_PAUSE);
        if last.values().any(|at| now < *at + TRANSFER_PAUSE) {
            return Err(format!("another transfer was within {TRANSFER_PAUSE:?}"));
        }
        if let Some(busy) = [from, to].into_iter().find(|n| last.contains_key(*n)) {
            return Err(format!("{busy} had a transfer within {NODE_PAUSE:?}"));
        }
        for node in [from, to] {
            last.insert(node.into(), now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;

    #[test]
    fn transfers_keep_their_pauses() {
        let network = Network::default();
        let (tests, second) = (&network.throughput, Duration::from_secs(1));
        tests.reserve("a", "b", Duration::ZERO).unwrap();
        let error = tests.reserve("c", "d", second * 9).unwrap_err();
        assert_eq!(error, "another transfer was within 10s");
        tests.reserve("c", "d", second * 10).unwrap();
        let error = tests.reserve("a", "e", second * 299).unwrap_err();
        assert_eq!(error, "a had a transfer within 300s");
        tests.reserve("a", "e", second * 300).unwrap();
    }
}
