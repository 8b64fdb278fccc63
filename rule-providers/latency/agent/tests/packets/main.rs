//! Agents on real packets: over loopback, through a relay that adds delay, jitter
//! and loss, following a provider of the test's own.

// Helpers of tests are no tests to the lint, and a failed step is a failed test.
#![allow(clippy::unwrap_used)]

mod figures;
mod outside;
mod provider;
// The one of the end-to-end tests; depending on their crate would build a control
// plane's clients.
#[path = "../../../../../tests/support/relay.rs"]
mod relay;
mod starved;
mod streams;
mod world;

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// How long a condition may take to come true: threefold what it should.
const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until `check` gives something; panics with `state` after `limit`.
async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    limit: Duration,
    mut check: impl FnMut() -> F,
    state: impl Fn() -> String,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(
            Instant::now() < deadline,
            "{what}: not within {limit:?}\n{}",
            state()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
