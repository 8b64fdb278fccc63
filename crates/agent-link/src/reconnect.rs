//! Keeps one stream to one replica open: opens it again whenever it ends.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::dial::Provider;

/// The shortest and the longest pause before a stream is opened again, without jitter.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// The lifetime of a stream after which the next pause is the shortest again.
const STABLE_STREAM_LIFETIME: Duration = Duration::from_secs(30);

/// Runs `session` again and again until `stop`, with growing pauses in between. A session must end
/// when its stream ends.
pub async fn keep_open<S>(
    provider: &Provider,
    address: SocketAddr,
    stop: &CancellationToken,
    session: impl Fn() -> S,
) where
    S: Future<Output = Result<()>>,
{
    let mut pause = BACKOFF.0;
    loop {
        let start = Instant::now();
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = session() => ended,
        };
        if start.elapsed() > STABLE_STREAM_LIFETIME {
            pause = BACKOFF.0;
        }
        let wait = pause.mul_f64(0.5 + fastrand::f64());
        pause = (pause * 2).min(BACKOFF.1);
        match ended {
            Ok(()) => tracing::debug!(%provider, %address, "stream ended; opening another"),
            Err(error) => {
                tracing::warn!(%provider, %address, error = %format!("{error:#}"), "no stream");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(wait) => {}
        }
    }
}

/// Returns the error of a stream that a replica ended or refused.
pub fn refused(status: Status) -> anyhow::Error {
    anyhow!("the replica says {:?}: {}", status.code(), status.message())
}
