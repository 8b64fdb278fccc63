//! Streams that a replica has sent away for a while, and what has them come back.

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Those who wait to be woken, by the key of their park: each is woken once.
#[derive(Debug, Default)]
pub struct Wakes(Mutex<HashMap<u64, oneshot::Sender<()>>>);

/// Waits to be woken; when dropped no more.
pub struct Waits<'a> {
    wakes: &'a Wakes,
    key: u64,
    woken: oneshot::Receiver<()>,
}

impl Wakes {
    /// Waits for the wake with the key. One for each stream: the replicas that are
    /// followed bound their number.
    pub fn wait(&self, key: u64) -> Waits<'_> {
        let (wake, woken) = oneshot::channel();
        self.0.lock().insert(key, wake);
        Waits {
            wakes: self,
            key,
            woken,
        }
    }

    /// Whether somebody waits for it.
    pub fn has(&self, key: u64) -> bool {
        self.0.lock().contains_key(&key)
    }

    /// Wakes whoever waits for it.
    pub fn wake(&self, key: u64) {
        if let Some(wake) = self.0.lock().remove(&key) {
            _ = wake.send(());
        }
    }
}

impl Waits<'_> {
    /// Completes when it is woken, and else never.
    pub async fn woken(&mut self) {
        if (&mut self.woken).await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.wakes.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, task::Poll};

    use super::*;

    async fn ready(waits: &mut Waits<'_>) -> bool {
        let mut woken = pin!(waits.woken());
        poll_fn(|context| Poll::Ready(woken.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn a_key_wakes_its_own_once() {
        let wakes = Wakes::default();
        let (mut one, mut other) = (wakes.wait(1), wakes.wait(2));
        wakes.wake(3);
        assert!(!ready(&mut one).await);
        wakes.wake(1);
        assert!(ready(&mut one).await && !ready(&mut other).await);
        assert!(!wakes.has(1) && wakes.has(2));
        drop((one, other));
        assert!(!wakes.has(2));
    }
}
