//! Futures that one task runs until they are removed.

use std::{collections::BTreeMap, future::pending, sync::Arc};

use futures::{
    StreamExt,
    future::{AbortHandle, Abortable, BoxFuture, abortable},
    stream::FuturesUnordered,
};

/// Futures by key. The task that awaits [`next`](Self::next) runs all of them, so a removed future does
/// nothing more, unlike an aborted task, which may still run on another thread.
pub(super) struct FuturesByKey<T> {
    running: FuturesUnordered<Abortable<BoxFuture<'static, T>>>,
    handles: BTreeMap<Arc<str>, AbortHandle>,
}

impl<T> Default for FuturesByKey<T> {
    fn default() -> Self {
        Self {
            running: FuturesUnordered::new(),
            handles: BTreeMap::new(),
        }
    }
}

impl<T> FuturesByKey<T> {
    pub(super) fn contains(&self, key: &str) -> bool {
        self.handles.contains_key(key)
    }

    /// Adds a future, in place of an earlier one with the key.
    pub(super) fn start(&mut self, key: Arc<str>, future: BoxFuture<'static, T>) {
        let (future, handle) = abortable(future);
        self.running.push(future);
        if let Some(earlier) = self.handles.insert(key, handle) {
            earlier.abort();
        }
    }

    /// Removes the futures whose keys do not pass `keep`.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.handles.retain(|key, handle| {
            let is_kept = keep(key);
            if !is_kept {
                handle.abort();
            }
            is_kept
        });
    }

    /// Runs the futures until one of them ends, and returns its output.
    pub(super) async fn next(&mut self) -> T {
        loop {
            match self.running.next().await {
                Some(Ok(output)) => return output,
                // It was removed.
                Some(Err(_)) => {}
                None => return pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn removed_futures_do_nothing_more() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut futures = FuturesByKey::default();
        let start = |futures: &mut FuturesByKey<()>, key: &str, what: &'static str| {
            let log = Arc::clone(&log);
            let future = async move {
                for _ in 0..100 {
                    sleep(Duration::from_secs(1)).await;
                    log.lock().push(what);
                }
            };
            futures.start(key.into(), Box::pin(future));
        };
        start(&mut futures, "a", "a");
        start(&mut futures, "b", "b");
        start(&mut futures, "b", "second b");
        let run = Duration::from_millis(1_500);
        assert!(timeout(run, futures.next()).await.is_err());
        log.lock().sort_unstable();
        assert_eq!(std::mem::take(&mut *log.lock()), ["a", "second b"]);
        futures.retain(|key| key == "a");
        assert!(futures.contains("a") && !futures.contains("b"));
        assert!(timeout(run, futures.next()).await.is_err());
        let later = std::mem::take(&mut *log.lock());
        assert!(
            !later.is_empty() && later.iter().all(|what| *what == "a"),
            "{later:?}"
        );
        futures.retain(|_| false);
        assert!(timeout(run, futures.next()).await.is_err());
        assert!(log.lock().is_empty());
    }

    #[tokio::test]
    async fn next_returns_outputs() {
        let mut futures = FuturesByKey::default();
        futures.start("a".into(), Box::pin(async { 7 }));
        assert_eq!(futures.next().await, 7);
    }
}
