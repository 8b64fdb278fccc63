//! The prediction of the round-trip times of unmeasured pairs, in a thread apart. It fits the model
//! to changes of the pair store, and publishes estimates and each node's targets. Requests read the
//! last fit and never wait.

mod fitter;
mod state_file;

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
use fitter::Fitter;
pub use fitter::{DEFAULT_TARGETS, FitSettings};

const MAX_WAIT: Duration = Duration::from_millis(500);
const RECOVERY_PAUSE: Duration = Duration::from_secs(5);

/// Runs fits until `stop`.
pub(crate) async fn run(network: Arc<Network>, settings: FitSettings, stop: &CancellationToken) {
    let fitter = Fitter::new(Arc::clone(&network), settings);
    let (mut fitter, _) = step(fitter, |fitter| fitter.restore(Instant::now())).await;
    loop {
        let changed = timeout(MAX_WAIT, network.agents_changed.notified());
        if stop.run_until_cancelled(changed).await.is_none() {
            break;
        }
        let succeeded;
        (fitter, succeeded) = step(fitter, |fitter| fitter.step(Instant::now())).await;
        if !succeeded {
            stop.run_until_cancelled(sleep(RECOVERY_PAUSE)).await;
        }
    }
    step(fitter, |fitter| fitter.save()).await;
}

/// Runs a step in a thread apart; returns false with a new fitter if the step panics. Then the next
/// fit starts from the pair store, and requests use the last fit until then.
async fn step(
    mut fitter: Fitter,
    step: impl FnOnce(&mut Fitter) + Send + 'static,
) -> (Fitter, bool) {
    let (network, settings) = (Arc::clone(&fitter.network), fitter.settings.clone());
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
    (Fitter::new(network, settings), false)
}
