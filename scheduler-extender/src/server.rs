//! The verbs over HTTP: limits first, then one place that maps errors to
//! answers.

use std::{convert::Infallible, sync::Arc, time::Instant};

use hyper::{Method, Request, body::Incoming};
use tautline_runtime::http::{Answer, answer, read, text};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};

use crate::{app::State, bind, filter, preempt, prioritize, wire::WireError};

const JSON: &str = "application/json";

/// The stack that every request passes: beyond the concurrency limit requests
/// are refused at once (503), and none takes longer than the deadline (504),
/// which lies below the scheduler's own.
pub(crate) fn stack(
    state: Arc<State>,
) -> impl Fn(Request<Incoming>) -> futures::future::BoxFuture<'static, Answer> + Clone + Send + Sync
{
    let inner = Arc::clone(&state);
    let handler = tower::service_fn(move |request| {
        let state = Arc::clone(&inner);
        async move { Ok::<_, Infallible>(route(&state, request).await) }
    });
    let service: BoxCloneSyncService<Request<Incoming>, Answer, BoxError> =
        BoxCloneSyncService::new(
            ServiceBuilder::new()
                .load_shed()
                .layer(tower::limit::GlobalConcurrencyLimitLayer::new(
                    state.config.concurrency,
                ))
                .timeout(state.config.deadline)
                .service(handler),
        );
    move |request| {
        let (mut service, state) = (service.clone(), Arc::clone(&state));
        Box::pin(async move {
            let (verb, start) = (verb(request.uri().path()), Instant::now());
            let result = match service.ready().await {
                Ok(ready) => ready.call(request).await,
                Err(error) => Err(error),
            };
            let answer = result.unwrap_or_else(|error| failure(&error));
            state
                .metrics
                .request(verb, answer.status().as_u16(), start.elapsed());
            answer
        })
    }
}

fn verb(path: &str) -> &'static str {
    match path.rsplit('/').next() {
        Some("filter") => "filter",
        Some("prioritize") => "prioritize",
        Some("preempt") => "preempt",
        Some("bind") => "bind",
        _ => "other",
    }
}

fn failure(error: &BoxError) -> Answer {
    if error.is::<tower::load_shed::error::Overloaded>() {
        text(
            503,
            "overloaded: too many requests at once; raise --concurrency\n",
        )
    } else if error.is::<tower::timeout::error::Elapsed>() {
        text(504, "deadline exceeded\n")
    } else {
        text(500, format!("{error}\n"))
    }
}

async fn route(state: &Arc<State>, request: Request<Incoming>) -> Answer {
    // By when the stack gives this request up.
    let by = tokio::time::Instant::now() + state.config.deadline;
    let verb = verb(request.uri().path());
    if verb == "other" {
        return text(
            404,
            "not found; the verbs are /filter, /prioritize, /preempt and /bind\n",
        );
    }
    if verb == "bind" && !state.config.bind {
        return text(404, "bind is off; start the extender with --bind\n");
    }
    if request.method() != Method::POST {
        return text(405, format!("{verb} takes POST\n"));
    }
    let body = match read(request, state.config.max_body_bytes).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let Ok(json) = std::str::from_utf8(&body) else {
        return text(400, "the body is not UTF-8\n");
    };
    let result = match verb {
        "filter" => filter::answer(state, json, by).await,
        "prioritize" => prioritize::answer(state, json).await,
        "preempt" => preempt::answer(state, json).await,
        _ => {
            // To its end, whatever becomes of this request: what is reserved is
            // either confirmed or released.
            let (state, json) = (Arc::clone(state), json.to_owned());
            let task = tokio::spawn(async move { bind::answer(&state, &json).await });
            match task.await {
                Ok(result) => result,
                Err(error) => return text(500, format!("bind failed: {error}\n")),
            }
        }
    };
    match result {
        Ok(body) => answer(200, JSON, body),
        Err(error @ (WireError::TooManyNodes { .. } | WireError::PodTooLarge { .. })) => {
            text(413, format!("{error}\n"))
        }
        Err(error @ WireError::Unsettled(_)) => text(503, format!("{error}\n")),
        Err(error) => text(400, format!("{error}\n")),
    }
}
