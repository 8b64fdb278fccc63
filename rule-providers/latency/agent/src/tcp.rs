//! Serves TCP on the port of the UDP socket. A connect shows that the node answers, and how fast.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use tokio::{net::TcpListener, sync::Semaphore, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::throughput::ThroughputResponder;

/// The greatest number of connections that are served at once, if throughput tests are on. Other
/// connections are accepted and closed.
const MAX_CONNECTIONS: usize = 16;

pub async fn serve(
    listener: TcpListener,
    sink: Option<Arc<ThroughputResponder>>,
    stop: CancellationToken,
) -> Result<()> {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // For example, the process is out of file descriptors. The pause prevents a busy
                // loop.
                tracing::debug!(%error, "accept failed");
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if let Some(sink) = &sink
            && let Ok(place) = Arc::clone(&places).try_acquire_owned()
        {
            let sink = Arc::clone(sink);
            tokio::spawn(async move {
                if let Err(error) = sink.take(stream).await {
                    tracing::debug!(%error, "a throughput test was not taken");
                }
                drop(place);
            });
        }
    }
}
