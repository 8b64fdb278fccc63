use std::sync::Arc;

use anyhow::Result;
use axum::{Router, middleware, routing::get};
use tautline_runtime::http::{self, Body, Limits, Port, PortMetrics};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{Console, assets, events, guard, pages, request};

/// The maximum size of a request. Browsers do not send larger ones.
const LARGEST_REQUEST_BYTES: usize = 64 << 10;

/// Serves the console until `stop`. The listener must be bound to loopback.
///
/// # Errors
/// It never fails so far.
pub async fn serve(
    listener: TcpListener,
    console: Arc<Console>,
    stop: CancellationToken,
) -> Result<()> {
    serve_within(Limits::default(), listener, console, stop).await
}

async fn serve_within(
    limits: Limits,
    listener: TcpListener,
    console: Arc<Console>,
    stop: CancellationToken,
) -> Result<()> {
    let router = router(console);
    let handle = move |request: axum::http::Request<Body>| {
        let answer = router.clone().oneshot(request);
        async move { answer.await.unwrap_or_else(|never| match never {}) }
    };
    let port = Port::new(limits, LARGEST_REQUEST_BYTES, PortMetrics::default());
    // The stop does not wait for streams of events, which never end by themselves.
    let never = CancellationToken::new();
    tokio::select! {
        result = http::serve(listener, None, handle, port, never) => result,
        () = stop.cancelled() => Ok(()),
    }
}

pub(crate) fn router(console: Arc<Console>) -> Router {
    Router::new()
        .merge(pages::routes())
        .route("/events", get(events::serve))
        .route("/assets/{name}", get(assets::serve))
        .fallback(pages::not_found)
        .layer(middleware::from_fn(request::show_errors))
        .layer(middleware::from_fn(guard::guard))
        .with_state(console)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        time::timeout,
    };

    use super::*;
    use crate::testing::{FakeSource, console};

    const PATIENCE: Duration = Duration::from_secs(60);

    async fn start(limits: Limits) -> (std::net::SocketAddr, tokio_util::sync::DropGuard) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, console) = (
            CancellationToken::new(),
            Arc::new(console("", FakeSource::default())),
        );
        tokio::spawn(serve_within(limits, listener, console, stop.clone()));
        (address, stop.drop_guard())
    }

    async fn read_until(stream: &mut TcpStream, text: &str) -> String {
        let mut all = Vec::new();
        let read = async {
            while !String::from_utf8_lossy(&all).contains(text) {
                assert!(stream.read_buf(&mut all).await.unwrap() > 0, "closed");
            }
        };
        timeout(PATIENCE, read).await.unwrap();
        String::from_utf8(all).unwrap()
    }

    #[tokio::test]
    async fn half_sent_headers_and_silence_end_in_time() {
        let short = Duration::from_millis(50);
        let limits = Limits {
            head: short,
            first_byte: short,
            idle: Some(short),
            ..Limits::default()
        };
        let (address, _stop) = start(limits).await;
        for sent in ["", "GET / HTTP/1.1\r\nHost: 127.0"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            let ended = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
            assert!(ended.is_ok(), "{sent:?} is still open");
            assert!(rest.is_empty(), "{sent:?}");
        }
    }

    #[tokio::test]
    async fn streams_of_events_outlive_the_time_of_other_answers() {
        let limits = Limits {
            response: Duration::from_millis(1),
            idle: Some(Duration::from_millis(1)),
            ..Limits::default()
        };
        let (address, _stop) = start(limits).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        // The first events come at once, the tick after 5 s.
        let text = read_until(&mut stream, "event: tick").await;
        assert!(text.contains("text/event-stream"), "{text}");
    }
}
