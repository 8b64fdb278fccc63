//! Starts the real control plane and Tautline's servers on loopback, for the end-to-end tests. The
//! servers are processes of the real binary; the control plane is etcd, kube-apiserver,
//! kube-scheduler, kube-controller-manager, and kwok in place of kubelets, built by
//! `tests/control-plane/build`.

#![warn(missing_docs)]

pub mod balancer;
mod components;
pub mod control_plane;
pub mod devices;
mod kueue;
pub mod loopback;
pub mod metrics_reference;
pub mod objects;
pub mod oracle;
pub mod process;
pub mod relay;
pub mod servers;
mod users;
pub mod workloads;

use std::{
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Time for a condition to come true. Most take a second or two; a busy machine needs
/// many times that, and only a failing test waits for all of it.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Polls until `check` returns a value; panics with `state` after `limit`.
pub async fn eventually<T, F, S>(
    what: &str,
    limit: Duration,
    mut check: impl FnMut() -> F,
    state: impl AsyncFnOnce() -> S,
) -> T
where
    F: Future<Output = Option<T>>,
    S: std::fmt::Display,
{
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        if Instant::now() > deadline {
            let state = state().await;
            panic!("{what}: not within {limit:?}. State:\n{state}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The repository's root.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.clone(), Into::into)
}
