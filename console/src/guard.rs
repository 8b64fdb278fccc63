//! Refuses requests that change something or that name another host, and sets the headers that keep
//! a browser from running or embedding anything else.

use hyper::{
    Method,
    header::{self, HeaderName},
    http::{request::Parts, uri::Authority},
};
use tautline_runtime::http::{self, HttpResponse};

/// The headers of every answer. Another version of the binary may use the same port later, so
/// browsers keep nothing.
pub(crate) const HEADERS: [(HeaderName, &str); 8] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (header::CACHE_CONTROL, "no-store"),
    (header::VARY, "HX-Request"),
];

/// Returns the answer to a request that is not for reading or that names another host.
pub(crate) fn refusal(request: &Parts) -> Option<HttpResponse> {
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Some(http::text(405, "the console is read-only: use GET\n"));
    }
    // A page of another site can make its own name point to this address (DNS rebinding).
    let host = request.headers.get(header::HOST);
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

#[cfg(test)]
mod tests {
    use super::*;

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
