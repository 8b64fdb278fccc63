//! `/latency` shows round-trip times between zones or between nodes; `/latency/pair/A/B` shows two
//! nodes.

mod answers;
mod limit;
mod network;
mod pair;
mod plot;
mod scope;
mod tiles;
mod worst;

use std::sync::Arc;

use axum::{
    Router,
    extract::Path,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};

use crate::{
    Console, events,
    request::{PageError, PageInfo, PageRequest, path},
};

pub(crate) use answers::Answers;

pub(super) fn routes() -> Router<Arc<Console>> {
    Router::new()
        .route("/latency", get(all))
        .route("/latency/pair/{from}/{to}", get(two))
}

/// Returns the link to the page of two nodes.
fn pair_link(from: &str, to: &str) -> String {
    path(&["latency", "pair", from, to])
}

async fn all(request: PageRequest) -> Result<Response, PageError> {
    if let Some(canonical) = limit::redirect(&request)? {
        return Ok(Redirect::to(&canonical).into_response());
    }
    let view = network::view(&request).await?;
    let info = PageInfo {
        title: "Latency",
        section: "/latency",
        command: &view.command(),
        live: &[events::TICKS],
    };
    Ok(request.respond(&info, &view, |view| network::render(view, &request)))
}

async fn two(
    Path((from, to)): Path<(String, String)>,
    request: PageRequest,
) -> Result<Response, PageError> {
    let view = pair::view(&request, &from, &to).await?;
    let title = view.title();
    let info = PageInfo {
        title: &title,
        section: "/latency",
        command: &view.command(),
        live: &[events::TICKS],
    };
    Ok(request.respond(&info, &view, pair::render))
}

#[cfg(test)]
mod tests;
