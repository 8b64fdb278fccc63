//! The HTTP service. Every status but 200 leaves the decision to the webhook's failurePolicy.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Instant};

use futures::{FutureExt, future::BoxFuture};
use hyper::{Method, Request};
use tautline_runtime::{
    admin::Readiness,
    http::{Body, Connection, HttpResponse, read_body, reserve_memory, respond, text},
};
use tokio::sync::Semaphore;

use crate::{
    config::Config,
    metrics::Metrics,
    response::ResponseKind,
    review::{self, Route, Routes},
};

/// The most JSON values of a review. Two of the largest objects that the API server accepts have
/// fewer.
const MAX_VALUES: usize = 500_000;
/// The bytes of a parsed value or list in addition to its text: a place in a list or an object, a
/// key, and a string.
const VALUE_BYTES: usize = 170;
/// The bytes of a parsed object with at least one field. A node of its tree has room for eleven
/// fields.
const OBJECT_BYTES: usize = 800;

pub(crate) struct Shared {
    pub config: Config,
    pub routes: Routes,
    pub metrics: Metrics,
    pub readiness: Readiness,
}

/// Returns the HTTP service. It reads the body before taking a permit, so that a slow client does
/// not delay other requests. Requests above the concurrency limit wait, because refusing them could
/// refuse their pods. The deadline includes the wait and is shorter than the API server's.
pub(crate) fn stack(
    shared: Arc<Shared>,
) -> impl Fn(Request<Body>) -> BoxFuture<'static, HttpResponse> + Clone + Send + Sync {
    let permits = Arc::new(Semaphore::new(shared.config.concurrency));
    move |request| {
        let (shared, permits) = (Arc::clone(&shared), Arc::clone(&permits));
        Box::pin(async move {
            let start = Instant::now();
            let path = request.uri().path();
            let handler = shared.routes.get(path).map_or("other", |r| r.name);
            let call = route(&shared, &permits, request);
            let answer = tokio::time::timeout(shared.config.deadline, call)
                .await
                .unwrap_or_else(|_| text(504, "deadline exceeded; see --deadline\n"));
            let status = answer.status().as_u16();
            shared.metrics.request(handler, status, start.elapsed());
            answer
        })
    }
}

async fn route(shared: &Arc<Shared>, permits: &Semaphore, request: Request<Body>) -> HttpResponse {
    let path = request.uri().path().to_owned();
    match path.as_str() {
        "/healthz" | "/livez" => return text(200, "ok\n"),
        "/readyz" => {
            return match shared.readiness.missing() {
                missing if missing.is_empty() => text(200, "ok\n"),
                missing => text(503, format!("waiting for: {}\n", missing.join(", "))),
            };
        }
        _ => {}
    }
    let Some(route) = shared.routes.get(path.as_str()) else {
        let known: Vec<&str> = shared.routes.keys().copied().collect();
        return text(
            404,
            format!("not found; the paths are {}\n", known.join(", ")),
        );
    };
    if request.method() != Method::POST {
        return text(405, format!("{path} takes POST\n"));
    }
    let connection = request.body().connection();
    let body = match read_body(request, shared.config.max_body_bytes).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let Ok(_permit) = permits.acquire().await else {
        return text(503, "the server is stopping\n");
    };
    if let Some(refusal) = check_values(&connection, &body) {
        return refusal;
    }
    let request = match review::decode(&body) {
        Ok(request) => Arc::new(request),
        Err(error) => return text(400, format!("{error}\n")),
    };
    drop(body);
    answer(shared, route, request).await
}

/// Bounds the memory of a parsed review, which takes many times the memory of its text.
fn check_values(connection: &Connection, body: &[u8]) -> Option<HttpResponse> {
    let (objects, others) = values(body);
    let values = objects + others;
    if values > MAX_VALUES {
        let error = format!("the review has {values} JSON values; {MAX_VALUES} are taken\n");
        return Some(text(413, error));
    }
    reserve_memory(connection, parsed_bytes(body.len(), objects, others))
}

/// Returns the number of objects, and the number of other values that may take memory.
fn values(body: &[u8]) -> (usize, usize) {
    let objects = body.iter().filter(|b| **b == b'{').count();
    let others = body.iter().filter(|b| matches!(b, b',' | b'[')).count();
    (objects, others)
}

fn parsed_bytes(text: usize, objects: usize, others: usize) -> usize {
    text + objects * OBJECT_BYTES + others * VALUE_BYTES
}

async fn answer(
    shared: &Shared,
    route: &Route,
    request: Arc<tautline_mutating_policy::Request>,
) -> HttpResponse {
    let review = async { (route.handler)(Arc::clone(&request)).await };
    let object = || review::object_name(&request);
    // A panic fails this review but not the connection.
    let response = match AssertUnwindSafe(review).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            tracing::error!(handler = route.name, object = %object(), "the review failed");
            return text(500, "the review failed; see the server's log\n");
        }
    };
    shared.metrics.review(route.name, &response);
    let (outcome, code) = (response.kind.as_str(), response.code);
    match response.kind {
        ResponseKind::Refuse | ResponseKind::Malformed => tracing::info!(
            handler = route.name, object = %object(), code, reason = %response.text, "refused"
        ),
        _ => tracing::debug!(
            handler = route.name, object = %object(), outcome, code, reason = %response.text, "reviewed"
        ),
    }
    if response.kind == ResponseKind::Malformed {
        return text(400, response.text);
    }
    match review::encode(&request.uid, &response) {
        Ok(body) => respond(200, "application/json", body),
        Err(error) => text(500, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use tautline_runtime::http::{Port, PortMetrics, serve};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        response::Response,
        review::{Handler, sync_handler},
    };

    const REVIEW: &str = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u-1", "operation": "CREATE", "object": {}}}"#;

    /// The server's paths, without TLS: `/allow`, `/slow`, `/broken`, `/odd`.
    async fn start() -> std::net::SocketAddr {
        let mut routes: Routes = BTreeMap::new();
        let slow: Handler = Arc::new(|_| Box::pin(std::future::pending()));
        let handlers = [
            ("/allow", sync_handler(|_| Response::allow("Ok", ""))),
            ("/slow", slow),
            ("/broken", sync_handler(|_| panic!("on purpose"))),
            ("/odd", sync_handler(|_| Response::malformed("no pod"))),
        ];
        for (path, handler) in handlers {
            routes.insert(
                path,
                Route {
                    name: "test",
                    handler,
                },
            );
        }
        let config = Config {
            max_body_bytes: 600_000,
            concurrency: 1,
            deadline: Duration::from_millis(300),
            ..Config::new("ns", "svc")
        };
        let shared = Arc::new(Shared {
            config,
            routes,
            metrics: Metrics::default(),
            readiness: Readiness::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let port = Port::new(shared.config.limits, 600_000, PortMetrics::default());
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, None, stack(shared), port, stop));
        address
    }

    async fn send(at: std::net::SocketAddr, verb: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let head = format!(
            "{verb} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        // The server may refuse before the client has sent everything.
        _ = stream.write_all((head + body).as_bytes()).await;
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    #[tokio::test]
    async fn every_request_gets_a_status() {
        let at = start().await;
        let review = REVIEW;
        let (status, body) = send(at, "POST", "/allow", review).await;
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(status, 200);
        assert_eq!(answer["response"]["uid"], "u-1");
        assert_eq!(answer["response"]["auditAnnotations"]["code"], "Ok");
        let large = "x".repeat(601_000);
        let many = format!("[{}]", ",".repeat(MAX_VALUES + 1));
        let cases = [
            ("POST", "/allow", "{", 400, "not an AdmissionReview"),
            ("POST", "/allow", large.as_str(), 413, "--max-body"),
            ("POST", "/allow", many.as_str(), 413, "JSON values"),
            ("GET", "/allow", "", 405, "takes POST"),
            ("POST", "/nowhere", review, 404, "/allow, /broken"),
            ("POST", "/slow", review, 504, "--deadline"),
            ("POST", "/broken", review, 500, "the review failed"),
            ("POST", "/odd", review, 400, "no pod"),
            ("GET", "/readyz", "", 200, "ok"),
            ("GET", "/livez", "", 200, "ok"),
        ];
        for (verb, path, body, expected, text) in cases {
            let (status, body) = send(at, verb, path, body).await;
            assert_eq!(status, expected, "{verb} {path}: {body}");
            assert!(body.contains(text), "{verb} {path}: {body}");
        }
    }

    fn resident_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        let kib = line
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse::<usize>();
        kib.unwrap() << 10
    }

    #[test]
    fn parsed_reviews_take_no_more_than_is_counted() {
        const COUNTED: usize = 128 << 20;
        /// Of the other tests meanwhile.
        const NOISE: usize = 64 << 20;
        let list = |of: &str| format!("[{}]", vec![of; 20_000].join(","));
        let fields: Vec<String> = (0..20_000).map(|i| format!(r#""k{i}":"v""#)).collect();
        for object in [
            list(r#"{"":0}"#),
            list(&format!("{}0{}", r#"{"":"#.repeat(20), "}".repeat(20))),
            list(&format!("{}{}", "[".repeat(20), "]".repeat(20))),
            list(r#""a""#),
            list("[0]"),
            format!("{{{}}}", fields.join(",")),
        ] {
            let review = REVIEW.replace(r#""object": {}"#, &format!(r#""object": {object}"#));
            let (objects, others) = values(review.as_bytes());
            let counted = parsed_bytes(review.len(), objects, others);
            let before = resident_bytes();
            let copies = COUNTED.div_ceil(counted);
            let read = |_| review::decode(review.as_bytes()).unwrap();
            let parsed: Vec<_> = (0..copies).map(read).collect();
            let grown = resident_bytes().saturating_sub(before);
            drop(parsed);
            let most = copies * counted + NOISE;
            let shape: String = object.chars().take(30).collect();
            assert!(
                grown < most,
                "{shape}: {} of {} MiB",
                grown >> 20,
                most >> 20
            );
        }
    }

    #[tokio::test]
    async fn half_sent_reviews_take_no_permit() {
        let at = start().await;
        let mut half = Vec::new();
        for _ in 0..64 {
            let mut stream = TcpStream::connect(at).await.unwrap();
            let head = "POST /allow HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{";
            stream.write_all(head.as_bytes()).await.unwrap();
            half.push(stream);
        }
        // There is one permit and a deadline of 300 ms: a half-sent review with the permit
        // would time this one out.
        for _ in 0..10 {
            let (status, _) = send(at, "POST", "/odd", REVIEW).await;
            assert_eq!(status, 400);
            let (status, text) = send(at, "POST", "/allow", REVIEW).await;
            assert_eq!(status, 200, "{text}");
        }
    }
}
