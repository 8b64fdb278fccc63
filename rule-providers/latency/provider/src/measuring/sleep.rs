use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Sleeps for `time`; returns false if stopped.
pub(super) async fn sleep(stop: &CancellationToken, time: Duration) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}
