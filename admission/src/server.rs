//! The paths over HTTP: limits first, then one place that maps errors to
//! answers. Whatever is not 200 leaves the request to the webhook's failurePolicy.

use std::{convert::Infallible, panic::AssertUnwindSafe, sync::Arc, time::Instant};

use futures::{FutureExt, future::BoxFuture};
use hyper::{Method, Request, body::Incoming};
use tautline_runtime::{
    admin::Readiness,
    http::{Answer, answer, read, text},
};
use tower::{Service, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};

use crate::{
    config::Config,
    job::{Outcome, Route, Routes},
    metrics::Metrics,
    review,
};

/// What requests share.
pub(crate) struct Shared {
    pub config: Config,
    pub routes: Routes,
    pub metrics: Metrics,
    pub readiness: Readiness,
}

/// The stack that every request passes. Beyond the concurrency limit requests
/// wait, because a refusal here can be a refusal of the pod; the deadline, which
/// lies below the API server's own, counts the waiting too.
pub(crate) fn stack(
    shared: Arc<Shared>,
) -> impl Fn(Request<Incoming>) -> BoxFuture<'static, Answer> + Clone + Send + Sync {
    let inner = Arc::clone(&shared);
    let handler = tower::service_fn(move |request| {
        let shared = Arc::clone(&inner);
        async move { Ok::<_, Infallible>(route(&shared, request).await) }
    });
    let limit = tower::limit::GlobalConcurrencyLimitLayer::new(shared.config.concurrency);
    let service: BoxCloneSyncService<Request<Incoming>, Answer, Infallible> =
        BoxCloneSyncService::new(ServiceBuilder::new().layer(limit).service(handler));
    move |request| {
        let (mut service, shared) = (service.clone(), Arc::clone(&shared));
        Box::pin(async move {
            let start = Instant::now();
            let path = request.uri().path();
            let job = shared.routes.get(path).map_or("other", |r| r.name);
            let call = async { service.ready().await?.call(request).await };
            let answer = match tokio::time::timeout(shared.config.deadline, call).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(never)) => match never {},
                Err(_) => text(504, "deadline exceeded; see --deadline\n"),
            };
            let status = answer.status().as_u16();
            shared.metrics.request(job, status, start.elapsed());
            answer
        })
    }
}

async fn route(shared: &Arc<Shared>, request: Request<Incoming>) -> Answer {
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
    let body = match read(request, shared.config.max_body_bytes).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let request = match review::Request::read(&body) {
        Ok(request) => Arc::new(request),
        Err(error) => return text(400, format!("{error}\n")),
    };
    drop(body);
    judge(shared, route, request).await
}

async fn judge(shared: &Arc<Shared>, route: &Route, request: Arc<review::Request>) -> Answer {
    let (job, asked) = (Arc::clone(&route.job), Arc::clone(&request));
    let review = async move { job.review(asked).await };
    // A defect there costs this answer and no connection. What it leaves behind is
    // the request, which goes with it.
    let verdict = match AssertUnwindSafe(review).catch_unwind().await {
        Ok(verdict) => verdict,
        Err(_) => {
            // The panic's own message is on standard error.
            tracing::error!(job = route.name, object = %request.object_name(), "a review failed");
            return text(500, "the review failed; the server's log tells more\n");
        }
    };
    shared.metrics.review(route.name, &verdict);
    let (outcome, code) = (verdict.outcome.as_str(), verdict.code);
    match verdict.outcome {
        Outcome::Refuse | Outcome::Malformed => tracing::info!(
            job = route.name, object = %request.object_name(), code, reason = %verdict.text, "refused"
        ),
        _ => tracing::debug!(
            job = route.name, object = %request.object_name(), outcome, code, reason = %verdict.text, "reviewed"
        ),
    }
    if verdict.outcome == Outcome::Malformed {
        return text(400, verdict.text);
    }
    match review::answer(&request.uid, &verdict) {
        Ok(body) => answer(200, "application/json", body),
        Err(error) => text(500, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use futures::future::BoxFuture;
    use prometheus_client::registry::Registry;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::job::{Job, Now, Verdict};

    /// Never answers.
    struct Slow;

    impl Job for Slow {
        fn review(self: Arc<Self>, _: Arc<review::Request>) -> BoxFuture<'static, Verdict> {
            Box::pin(std::future::pending())
        }
    }

    /// The server's address, without TLS: `/allow`, `/slow`, `/broken`, `/odd`.
    async fn start() -> std::net::SocketAddr {
        let mut routes: Routes = BTreeMap::new();
        let jobs: [(&str, Arc<dyn Job>); 4] = [
            (
                "/allow",
                Arc::new(Now(|_: &review::Request| Verdict::allow("Ok", ""))),
            ),
            ("/slow", Arc::new(Slow)),
            (
                "/broken",
                Arc::new(Now(|_: &review::Request| panic!("on purpose"))),
            ),
            (
                "/odd",
                Arc::new(Now(|_: &review::Request| Verdict::malformed("no pod"))),
            ),
        ];
        for (path, job) in jobs {
            routes.insert(path, Route { name: "test", job });
        }
        let config = Config {
            max_body_bytes: 2000,
            deadline: Duration::from_millis(300),
            ..Config::new("ns", "svc")
        };
        let shared = Arc::new(Shared {
            config,
            routes,
            metrics: Metrics::register(&mut Registry::default()),
            readiness: Readiness::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve =
            tautline_runtime::http::serve(listener, None, stack(shared), CancellationToken::new());
        tokio::spawn(serve);
        address
    }

    /// Status and body of the answer.
    async fn ask(at: std::net::SocketAddr, verb: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let head = format!(
            "{verb} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + body).as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    #[tokio::test]
    async fn whatever_comes_in_is_answered() {
        let at = start().await;
        let review = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "u-1", "operation": "CREATE", "object": {}}}"#;
        let (status, body) = ask(at, "POST", "/allow", review).await;
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(status, 200);
        assert_eq!(answer["response"]["uid"], "u-1");
        assert_eq!(answer["response"]["auditAnnotations"]["code"], "Ok");
        let large = "x".repeat(3000);
        let cases = [
            ("POST", "/allow", "{", 400, "no AdmissionReview"),
            ("POST", "/allow", large.as_str(), 413, "--max-body"),
            ("GET", "/allow", "", 405, "takes POST"),
            ("POST", "/nowhere", review, 404, "/allow, /broken"),
            ("POST", "/slow", review, 504, "--deadline"),
            ("POST", "/broken", review, 500, "the review failed"),
            ("POST", "/odd", review, 400, "no pod"),
            ("GET", "/readyz", "", 200, "ok"),
            ("GET", "/livez", "", 200, "ok"),
        ];
        for (verb, path, body, expected, text) in cases {
            let (status, told) = ask(at, verb, path, body).await;
            assert_eq!(status, expected, "{verb} {path}: {told}");
            assert!(told.contains(text), "{verb} {path}: {told}");
        }
    }
}
