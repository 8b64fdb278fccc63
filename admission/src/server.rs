//! The paths over HTTP: limits first, then one place that maps errors to
//! answers. Whatever is not 200 leaves the request to the webhook's failurePolicy.

use std::{convert::Infallible, sync::Arc, time::Instant};

use futures::future::BoxFuture;
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
    let review = Arc::clone(&route.job).review(Arc::clone(&request));
    // A task of its own: a defect there costs this answer and no connection.
    let verdict = match tokio::spawn(review).await {
        Ok(verdict) => verdict,
        Err(error) => {
            tracing::error!(job = route.name, object = %request.object_name(), %error, "a review failed");
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
    match serde_json::to_vec(&review::answer(&request.uid, &verdict)) {
        Ok(body) => answer(200, "application/json", body),
        Err(error) => text(500, format!("{error}\n")),
    }
}
