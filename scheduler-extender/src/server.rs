//! The verbs over HTTP: limits first, then one place that maps errors to
//! answers.

use std::{sync::Arc, time::Instant};

use hyper::{Method, Request};
use tautline_runtime::http::{Body, HttpResponse, read_body, respond, retry_later, text};
use tokio::sync::Semaphore;

use crate::{app::State, bind, filter, preempt, prioritize, wire::WireError};

const JSON: &str = "application/json";
/// A body above this takes milliseconds of the only thread, up to a hundred or so.
const LARGE_BYTES: usize = 1 << 20;

/// The turns that requests take.
struct Turns {
    /// Requests being handled.
    under_way: Semaphore,
    /// Binds wait for allocators and underlay controllers, and must not hold up filter,
    /// which every pod waits for.
    binds: Semaphore,
    /// Large ones begin one after another, and what waits for the thread comes between two.
    large: Semaphore,
}

/// What every request passes: its body is read first, so that a client that sends slowly
/// keeps no other waiting. Beyond the concurrency limit requests are refused at once (503),
/// and none takes longer than the deadline (504), which lies below the scheduler's own.
pub(crate) fn stack(
    state: Arc<State>,
) -> impl Fn(Request<Body>) -> futures::future::BoxFuture<'static, HttpResponse> + Clone + Send + Sync
{
    let turns = Arc::new(Turns {
        under_way: Semaphore::new(state.config.concurrency),
        binds: Semaphore::new(state.config.concurrency),
        large: Semaphore::new(1),
    });
    move |request| {
        let (state, turns) = (Arc::clone(&state), Arc::clone(&turns));
        Box::pin(async move {
            let (verb, start) = (verb(request.uri().path()), Instant::now());
            // By when this request is given up.
            let by = tokio::time::Instant::from_std(start) + state.config.deadline;
            let answer = tokio::time::timeout_at(by, route(&state, &turns, verb, request, by))
                .await
                .unwrap_or_else(|_| text(504, "deadline exceeded\n"));
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

async fn route(
    state: &Arc<State>,
    turns: &Turns,
    verb: &'static str,
    request: Request<Body>,
    by: tokio::time::Instant,
) -> HttpResponse {
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
    let body = match read_body(request, state.config.max_body_bytes).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let permits = match verb {
        "bind" => &turns.binds,
        _ => &turns.under_way,
    };
    let Ok(_permit) = permits.try_acquire() else {
        state.port.metrics().rejected("Concurrency");
        return retry_later("overloaded: too many requests at once; raise --concurrency\n");
    };
    if body.len() > LARGE_BYTES {
        let _turn = turns.large.acquire().await;
        tokio::task::yield_now().await;
    }
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
            drop(body);
            let task = tokio::spawn(async move { bind::answer(&state, &json).await });
            match task.await {
                Ok(result) => result,
                Err(error) => return text(500, format!("bind failed: {error}\n")),
            }
        }
    };
    match result {
        Ok(body) => respond(200, JSON, body),
        Err(error @ (WireError::TooManyNodes { .. } | WireError::PodTooLarge { .. })) => {
            text(413, format!("{error}\n"))
        }
        Err(error @ WireError::Unsettled(_)) => text(503, format!("{error}\n")),
        Err(error) => text(400, format!("{error}\n")),
    }
}
