//! Refuses requests that change something or that name another host, and sets the headers that keep
//! a browser from running or embedding anything else.

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue, Method, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

const HEADERS: [(HeaderName, &str); 7] = [
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
    (header::VARY, "HX-Request"),
];

pub(crate) async fn guard(request: Request, next: Next) -> Response {
    let mut response = match refusal(&request) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        let headers = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refusal(request: &Request) -> Option<(StatusCode, &'static str)> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Some((
            StatusCode::METHOD_NOT_ALLOWED,
            "the console is read-only: use GET\n",
        ));
    }
    // A page of another site can make its own name point to this address (DNS rebinding).
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    match host {
        Some(host) if is_loopback(host.host()) => None,
        _ => Some((
            StatusCode::MISDIRECTED_REQUEST,
            "open the console at http://127.0.0.1 or http://localhost, with its port\n",
        )),
    }
}

fn is_loopback(host: &str) -> bool {
    matches!(host, "127.0.0.1" | "[::1]") || host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn status(method: &str, host: Option<&str>) -> Option<u16> {
        let mut request = axum::http::Request::builder().method(method).uri("/");
        if let Some(host) = host {
            request = request.header("Host", host);
        }
        let request = request.body(Body::empty()).unwrap();
        refusal(&request).map(|(status, _)| status.as_u16())
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
