//! Serves the console to browsers of this machine, for reading only. The headers keep a browser from
//! running or embedding anything else.

use std::sync::Arc;

use anyhow::Result;
use hyper::{
    Method, Request,
    header::{HOST, HeaderValue},
    http::{request::Parts, uri::Authority},
};
use tautline_runtime::http::{self, Body, HttpResponse, Limits, Port, PortMetrics};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Console, pages};

/// The maximum size of a request. Browsers do not send larger ones.
const LARGEST_REQUEST_BYTES: usize = 64 << 10;

/// The headers of every answer. Another version of the binary may use the same port later, so
/// browsers keep nothing.
const HEADERS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
    ("vary", "HX-Request"),
];

/// Serves the console until `stop`. The listener must be bound to loopback.
///
/// # Errors
/// It never fails so far.
pub async fn serve(
    limits: Limits,
    listener: TcpListener,
    console: Arc<Console>,
    stop: CancellationToken,
) -> Result<()> {
    let handle = move |request: Request<Body>| {
        let console = Arc::clone(&console);
        async move { answer(&console, &request.into_parts().0).await }
    };
    let port = Port::new(limits, LARGEST_REQUEST_BYTES, PortMetrics::default());
    http::serve(listener, None, handle, port, stop).await
}

/// Returns the answer to a request: an asset or a page.
pub(crate) async fn answer(console: &Arc<Console>, request: &Parts) -> HttpResponse {
    let path = request.uri.path();
    let mut answer = if let Some(refusal) = refusal(request) {
        refusal
    } else if let Some(name) = path.strip_prefix("/assets/") {
        asset(name)
    } else {
        pages::answer(console, &request.uri).await
    };
    for (name, value) in HEADERS {
        let headers = answer.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// Returns the answer to a request that is not for reading or that names another host.
fn refusal(request: &Parts) -> Option<HttpResponse> {
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Some(http::text(405, "the console is read-only: use GET\n"));
    }
    // A page of another site can make its own name point to this address (DNS rebinding).
    let host = request.headers.get(HOST);
    let host = host.and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    match host {
        Some(host) if is_loopback(host.host()) => None,
        _ => Some(http::text(
            421,
            "open the console at http://127.0.0.1 or http://localhost, with its port\n",
        )),
    }
}

fn is_loopback(host: &str) -> bool {
    matches!(host, "127.0.0.1" | "[::1]") || host.eq_ignore_ascii_case("localhost")
}

/// Returns the style sheet or a script, which are part of the binary.
fn asset(name: &str) -> HttpResponse {
    let script = |body: &'static [u8]| http::respond(200, "text/javascript; charset=utf-8", body);
    match name {
        "console.css" => http::respond(
            200,
            "text/css; charset=utf-8",
            &include_bytes!("../assets/console.css")[..],
        ),
        "console.js" => script(include_bytes!("../assets/console.js")),
        "htmx.min.js" => script(include_bytes!("../assets/htmx.min.js")),
        _ => http::text(404, ""),
    }
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
    use crate::tests::{FakeSource, console};

    const PATIENCE: Duration = Duration::from_secs(60);

    async fn start(limits: Limits) -> (std::net::SocketAddr, tokio_util::sync::DropGuard) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, console) = (
            CancellationToken::new(),
            Arc::new(console("", FakeSource::default())),
        );
        tokio::spawn(serve(limits, listener, console, stop.clone()));
        (address, stop.drop_guard())
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

    fn status(method: &str, host: Option<&str>) -> Option<u16> {
        let mut request = hyper::Request::builder().method(method).uri("/");
        if let Some(host) = host {
            request = request.header("Host", host);
        }
        let request = request.body(()).unwrap().into_parts().0;
        refusal(&request).map(|answer| answer.status().as_u16())
    }

    #[test]
    fn only_reads_of_this_host_pass() {
        for host in ["127.0.0.1:8080", "localhost:1", "LocalHost", "[::1]:80"] {
            assert_eq!(status("GET", Some(host)), None, "{host}");
        }
        assert_eq!(status("HEAD", Some("localhost")), None);
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "ODD"] {
            assert_eq!(status(method, Some("localhost")), Some(405), "{method}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "a b",
            "",
        ] {
            assert_eq!(status("GET", Some(host)), Some(421), "{host}");
        }
        assert_eq!(status("GET", None), Some(421));
    }
}
