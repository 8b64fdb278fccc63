//! An HTTP/1.1 server over TCP or TLS, with the limits that any server needs.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

use crate::tls::ServerTls;

/// A whole answer.
pub type Answer = Response<Full<Bytes>>;

/// Bounds on what clients may hold open.
const MAX_CONNECTIONS: usize = 512;
/// Also how long a connection may idle: above the 90 s for which kube-scheduler
/// keeps its own, so that it never sends into a close.
const HEADER_TIMEOUT: Duration = Duration::from_secs(150);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// How long connections get to finish at shutdown.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves `handle` on `listener` until `stop`; then finishes requests under way.
pub async fn serve<H, F>(
    listener: TcpListener,
    tls: Option<ServerTls>,
    handle: H,
    stop: CancellationToken,
) -> Result<()>
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // A slot first: beyond the bound, clients wait in the listen queue.
        let slot = tokio::select! {
            () = stop.cancelled() => break,
            slot = Arc::clone(&slots).acquire_owned() => slot?,
        };
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, or the peer has gone: go on.
                    tracing::debug!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let (tls, handle, watcher) = (tls.clone(), handle.clone(), graceful.watcher());
        tokio::spawn(async move {
            if let Err(error) = connection(stream, tls, handle, watcher).await {
                tracing::debug!(%error, "connection ended with an error");
            }
            drop(slot);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("connections did not end in {DRAIN:?}; leaving them");
    }
    Ok(())
}

async fn connection<H, F>(
    stream: TcpStream,
    tls: Option<ServerTls>,
    handle: H,
    graceful: Watcher,
) -> Result<()>
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    stream.set_nodelay(true)?;
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES);
    let service = service_fn(move |request| {
        let answer = handle(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    match tls {
        None => {
            graceful
                .watch(server.serve_connection(TokioIo::new(stream), service))
                .await?
        }
        Some(tls) => {
            let handshake = tls.acceptor().accept(stream);
            let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await??;
            graceful
                .watch(server.serve_connection(TokioIo::new(stream), service))
                .await?;
        }
    }
    Ok(())
}

/// An answer with a body.
pub fn answer(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(content_type),
    );
    response
}

/// An answer of plain text.
pub fn text(status: u16, body: impl Into<String>) -> Answer {
    answer(status, "text/plain; charset=utf-8", body.into())
}

/// The whole body, unless it is larger than allowed: known from its length where
/// that is given, else as soon as it is.
pub async fn read(request: Request<Incoming>, most: usize) -> Result<Bytes, Answer> {
    let too_large = || {
        text(
            413,
            format!("the body exceeds {most} bytes; raise --max-body\n"),
        )
    };
    let mut body = request.into_body();
    let length = body.size_hint();
    if length.lower() > most as u64 {
        return Err(too_large());
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| text(400, format!("the body broke off: {e}\n")))?;
        if let Ok(data) = frame.into_data() {
            if whole.len() + data.len() > most {
                return Err(too_large());
            }
            if whole.is_empty() {
                // What has come in one piece needs no copy.
                if body.is_end_stream() {
                    return Ok(data);
                }
                whole.reserve(usize::try_from(length.lower()).unwrap_or(0));
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}
