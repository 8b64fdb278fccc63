use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{context::FitContext, fitter::Fitter, state_file};

const MAX_WAIT: Duration = Duration::from_millis(500);
const RECOVERY_PAUSE: Duration = Duration::from_secs(5);

/// Runs fits until `stop`. After a panic the next fit starts from the pair store, and requests use
/// the last fit until then.
pub(crate) fn run(context: FitContext, stop: &CancellationToken) {
    let mut fitter = match state_file::restore(&context) {
        Some(model) => Fitter::restored(context.clone(), model, Instant::now()),
        None => Fitter::new(context.clone()),
    };
    while !stop.is_cancelled() {
        context.network.signals.fit.wait(MAX_WAIT);
        if !step_caught(&context, &mut fitter, |fitter| fitter.step(Instant::now())) {
            let until = Instant::now() + RECOVERY_PAUSE;
            while Instant::now() < until && !stop.is_cancelled() {
                context.network.signals.fit.wait(MAX_WAIT);
            }
        }
    }
    fitter.save();
}

/// Runs a step. If it panics, replaces the fitter and returns false.
pub(super) fn step_caught(
    context: &FitContext,
    fitter: &mut Fitter,
    step: impl FnOnce(&mut Fitter),
) -> bool {
    if catch_unwind(AssertUnwindSafe(|| step(fitter))).is_ok() {
        return true;
    }
    context.network.metrics.fit_panics.inc();
    tracing::error!(
        "a fit panicked; the last estimates stay, and the next fit starts from nothing"
    );
    *fitter = Fitter::new(context.clone());
    context.network.pairs.lock().mark_all_changed();
    false
}
