//! The prediction of the round-trip times of unmeasured pairs, in a thread apart. It fits the model
//! to changes of the pair store, and publishes estimates and each node's targets. Requests read the
//! last fit and never wait.

mod fitter;

#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::network::Network;
pub use fitter::DEFAULT_TARGETS;
use fitter::Fitter;

const MAX_WAIT: Duration = Duration::from_millis(500);
const RECOVERY_PAUSE: Duration = Duration::from_secs(5);

/// Runs fits until `stop`; `targets` is the number of nodes that each node measures.
pub(crate) async fn run(network: Arc<Network>, targets: usize, stop: &CancellationToken) {
    let mut fitter = Fitter::new(Arc::clone(&network), targets);
    loop {
        let changed = timeout(MAX_WAIT, network.agents_changed.notified());
        if stop.run_until_cancelled(changed).await.is_none() {
            return;
        }
        let succeeded;
        (fitter, succeeded) = step(fitter, |fitter| fitter.step(Instant::now())).await;
        if !succeeded {
            stop.run_until_cancelled(sleep(RECOVERY_PAUSE)).await;
        }
    }
}

/// Runs a step in a thread apart; returns false with a new fitter if the step panics. Then the next
/// fit starts from the pair store, and requests use the last fit until then.
async fn step(
    mut fitter: Fitter,
    step: impl FnOnce(&mut Fitter) + Send + 'static,
) -> (Fitter, bool) {
    let (network, targets) = (Arc::clone(&fitter.network), fitter.targets);
    let stepped = spawn_blocking(move || {
        step(&mut fitter);
        fitter
    });
    if let Ok(fitter) = stepped.await {
        return (fitter, true);
    }
    network.metrics.fit_panics.inc();
    tracing::error!(
        "a fit panicked; the last estimates stay, and the next fit starts from nothing"
    );
    network.pairs.lock().mark_all_changed();
    (Fitter::new(network, targets), false)
}
