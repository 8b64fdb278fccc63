//! An HTTP/1.1 server over TCP or TLS with bounded time and memory.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Either, Full};
use hyper::{
    Request, Response,
    body::{Body as _, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{rt::TokioIo, server::graceful::GracefulShutdown};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use crate::{
    connection::Connection,
    limits::Limits,
    port::Port,
    port_metrics::{ConnectionMetrics, PortMetrics},
    stream::Protocol,
};
use crate::{connections::Phase, tls::ServerTls};

/// A response with a complete body.
pub type HttpResponse = Response<Full<Bytes>>;

const MAX_HEADER_BYTES: usize = 64 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The body of a request, with its connection.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    connection: Arc<Connection>,
}

impl Body {
    /// The request's connection.
    pub fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// A response body. hyper drops it when only the flush is left.
struct Outgoing<B> {
    body: Either<B, Full<Bytes>>,
    connection: Arc<Connection>,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl<B> hyper::body::Body for Outgoing<B>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Outgoing<B> {
    fn drop(&mut self) {
        self.connection.activity.progress(Phase::Flush);
    }
}

/// Serves `handle` on `listener` until `stop`, then finishes the requests in progress. A response
/// without a known length, such as a stream of events, may take any time.
///
/// # Errors
/// It never fails so far.
pub async fn serve<H, F, B>(
    listener: TcpListener,
    tls: Option<ServerTls>,
    handle: H,
    port: Port,
    stop: CancellationToken,
) -> Result<()>
where
    H: Fn(Request<Body>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    // `None` from the stop on, so that later handshakes are not served.
    let graceful = Arc::new(Mutex::new(Some(GracefulShutdown::new())));
    let watchers = Arc::clone(&graceful);
    let connection = move |stream: crate::stream::Stream| {
        let watcher = watchers.lock().as_ref().map(GracefulShutdown::watcher);
        let handle = handle.clone();
        let connection = Arc::clone(stream.connection());
        let service = service_fn(move |request: Request<Incoming>| {
            connection.activity.progress(Phase::Work);
            let request = request.map(|incoming| Body {
                incoming,
                connection: Arc::clone(&connection),
            });
            let (answer, connection) = (handle(request), Arc::clone(&connection));
            async move { Ok::<_, Infallible>(outgoing(answer.await, connection)) }
        });
        let served = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        async move {
            let Some(watcher) = watcher else { return };
            if let Err(error) = watcher.watch(served).await {
                tracing::debug!(%error, "connection ended with an error");
            }
        }
    };
    port.accept(listener, tls, Protocol::Http1, connection, stop)
        .await;
    let Some(graceful) = graceful.lock().take() else {
        return Ok(());
    };
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("connections did not end in {DRAIN_TIMEOUT:?}; leaving them");
    }
    Ok(())
}

fn outgoing<B>(answer: Response<B>, connection: Arc<Connection>) -> Response<Outgoing<B>>
where
    B: hyper::body::Body<Data = Bytes>,
{
    let size = answer.body().size_hint();
    let bytes = usize::try_from(size.lower()).unwrap_or(usize::MAX);
    let answer = match connection.charge_answer(bytes) {
        Ok(()) => answer.map(Either::Left),
        Err(_) => out_of_memory(&connection).map(Either::Right),
    };
    if size.exact().is_some() {
        connection.enter(Phase::Response);
    }
    answer.map(|body| Outgoing { body, connection })
}

/// Reserves memory for a request until it is answered; returns the 503 response if none is left.
pub fn reserve_memory(connection: &Connection, bytes: usize) -> Option<HttpResponse> {
    let charged = connection.charge(bytes);
    charged.is_err().then(|| out_of_memory(connection))
}

/// Counts a request that is rejected for lack of memory, and returns its 503 response.
pub fn out_of_memory(connection: &Connection) -> HttpResponse {
    connection.port().metrics().rejected("Memory");
    retry_later(
        "too many bytes of requests at once; send fewer, or raise --request-memory\n".to_owned(),
    )
}

/// A response with the status 503 and `Retry-After: 1`.
pub fn retry_later(text: impl Into<String>) -> HttpResponse {
    let mut answer = self::text(503, text);
    answer.headers_mut().insert(
        http::header::RETRY_AFTER,
        http::HeaderValue::from_static("1"),
    );
    answer
}

/// A response with a body.
pub fn respond(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(content_type),
    );
    response
}

/// A plain text response.
pub fn text(status: u16, body: impl Into<String>) -> HttpResponse {
    respond(status, "text/plain; charset=utf-8", body.into())
}

/// Reads the whole body of a request, and counts it against the port's memory for requests.
///
/// # Errors
/// The error is the response to send: the body is larger than `most` bytes (413), memory is used up
/// (503), the body did not arrive in time (408), or the connection broke (400).
pub async fn read_body(request: Request<Body>, most: usize) -> Result<Bytes, HttpResponse> {
    let mut body = request.into_body();
    let connection = Arc::clone(&body.connection);
    let within = connection.port().limits().body;
    connection.activity.progress(Phase::Body);
    let read = tokio::time::timeout(within, read_within(&mut body, most)).await;
    connection.activity.progress(Phase::Work);
    let read = match read {
        Ok(read) => read,
        Err(_) => {
            connection.port().metrics().rejected("SlowBody");
            let error = format!("the body did not arrive within {within:?}\n");
            Err(text(408, error))
        }
    };
    if read.is_err() {
        connection.release();
    }
    read
}

async fn read_within(body: &mut Body, most: usize) -> Result<Bytes, HttpResponse> {
    let too_large = || {
        text(
            413,
            format!("the body exceeds {most} bytes; raise --max-body\n"),
        )
    };
    let connection = Arc::clone(&body.connection);
    // A body may be rejected by its announced length, but only received bytes are charged.
    let promised = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if promised > most {
        return Err(too_large());
    }
    if !connection.fits(promised) {
        return Err(out_of_memory(&connection));
    }
    // Without an announced length the buffer grows by doubling.
    let weight = if promised > 0 { 1 } else { 2 };
    let mut whole = BytesMut::new();
    while let Some(frame) = body.incoming.frame().await {
        let frame = frame.map_err(|e| text(400, format!("the body broke off: {e}\n")))?;
        if let Ok(data) = frame.into_data() {
            if whole.len() + data.len() > most {
                return Err(too_large());
            }
            if connection.charge(data.len() * weight).is_err() {
                return Err(out_of_memory(&connection));
            }
            if whole.is_empty() {
                // A body in one piece needs no copy.
                if body.incoming.is_end_stream() {
                    return Ok(data);
                }
                whole.reserve(promised);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}
