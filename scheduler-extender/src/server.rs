//! Serves the verbs over HTTP: limits requests, routes the verbs, and gives errors their statuses.

use std::{sync::Arc, time::Instant};

use hyper::{Method, Request};
use tautline_core::group::MAX_MEMBERS;
use tautline_runtime::http::{
    Body, HttpResponse, out_of_memory, read_body, respond, retry_later, text,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    bind::bind, client::Client, filter::filter, preempt::preempt, prioritize::prioritize,
    state::State, what_if::what_if, wire::WireError,
};

/// The verbs of kube-scheduler's port.
pub(crate) const SCHEDULER_VERBS: &[&str] = &["filter", "prioritize", "preempt", "bind"];
/// The verb of the admin port.
pub(crate) const ADMIN_VERBS: &[&str] = &["what-if"];

const JSON: &str = "application/json";
/// The size from which a body takes the only thread for milliseconds, up to about a hundred.
const LARGE_BYTES: usize = 1 << 20;
/// The maximum number of concurrent what-ifs, since the admin port has no login.
const MAX_WHAT_IFS: usize = 4;

struct Permits {
    requests: Semaphore,
    /// The permits of binds, which wait for allocators, underlay controllers, and the binds of a
    /// whole group. They must not delay filter, which every pod waits for.
    binds: Semaphore,
    what_ifs: Semaphore,
    /// The permit of large requests, which start one by one, so that other requests run in between.
    large: Semaphore,
}

/// Handles requests of these verbs. It reads the body before it takes a permit, so that a slow
/// client delays no other. Requests beyond the limit get a 503 at once; the deadline (504) is below
/// the scheduler's timeout.
pub(crate) fn handler(
    state: Arc<State>,
    verbs: &'static [&'static str],
) -> impl Fn(Request<Body>) -> futures::future::BoxFuture<'static, HttpResponse> + Clone + Send + Sync
{
    let permits = Arc::new(Permits {
        requests: Semaphore::new(state.config.concurrency),
        binds: Semaphore::new(state.config.concurrency + MAX_MEMBERS),
        what_ifs: Semaphore::new(MAX_WHAT_IFS),
        large: Semaphore::new(1),
    });
    move |request| {
        let (state, permits) = (Arc::clone(&state), Arc::clone(&permits));
        Box::pin(async move {
            let (verb, start) = (verb(verbs, request.uri().path()), Instant::now());
            let mut deadline = tokio::time::Instant::from_std(start) + state.config.deadline;
            if verb == "bind" {
                deadline += state.config.group_timeout;
            }
            let routed = route(&state, &permits, verb, request, deadline);
            let response = tokio::time::timeout_at(deadline, routed)
                .await
                .unwrap_or_else(|_| text(504, "deadline exceeded\n"));
            state
                .metrics
                .request(verb, response.status().as_u16(), start.elapsed());
            response
        })
    }
}

fn verb(verbs: &[&'static str], path: &str) -> &'static str {
    let last = path.rsplit('/').next();
    let known = verbs.iter().find(|verb| Some(**verb) == last);
    known.copied().unwrap_or("other")
}

async fn route(
    state: &Arc<State>,
    permits: &Permits,
    verb: &'static str,
    request: Request<Body>,
    deadline: tokio::time::Instant,
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
    let caller = state.config.traces.caller(request.headers());
    let connection = request.body().connection();
    let body = match read_body(request, state.config.max_body_bytes).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let (semaphore, fix) = match verb {
        "bind" => (&permits.binds, "raise --concurrency"),
        "what-if" => (&permits.what_ifs, "try again"),
        _ => (&permits.requests, "raise --concurrency"),
    };
    let Ok(_permit) = semaphore.try_acquire() else {
        connection.port().metrics().rejected("Concurrency");
        return retry_later(format!("overloaded: too many requests at once; {fix}\n"));
    };
    if body.len() > LARGE_BYTES {
        let _large = permits.large.acquire().await;
        tokio::task::yield_now().await;
    }
    let Ok(json) = std::str::from_utf8(&body) else {
        return text(400, "the body is not UTF-8\n");
    };
    state.recorded().await;
    let from = Client {
        caller: &caller,
        connection: &connection,
    };
    let result = match verb {
        "filter" => filter(state, json, &from, deadline).await,
        "prioritize" => prioritize(state, json, &from).await,
        "preempt" => preempt(state, json, &from).await,
        "what-if" => what_if(state, json, &from).await,
        _ => {
            // A bind runs to its end even if the request is cut off, so that a reservation is
            // either confirmed or released.
            let (state, json) = (Arc::clone(state), json.to_owned());
            drop(body);
            let left = CancellationToken::new();
            let _waits = left.clone().drop_guard();
            let task = tokio::spawn(async move { bind(&state, &json, &caller, &left).await });
            match task.await {
                Ok(result) => result,
                Err(error) => return text(500, format!("bind failed: {error}\n")),
            }
        }
    };
    match result {
        Ok(body) => respond(200, JSON, body),
        Err(WireError::Memory) => out_of_memory(&connection),
        Err(
            error @ (WireError::TooManyNodes { .. }
            | WireError::PodTooLarge { .. }
            | WireError::PodTooLong { .. }),
        ) => text(413, format!("{error}\n")),
        Err(error) => text(400, format!("{error}\n")),
    }
}
