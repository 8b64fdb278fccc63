//! `/gpu` shows the cards of the cluster and the requests that still fit; `/gpu/NODE` shows the
//! cards of one node.

mod bars;
mod classes;
mod cluster;
mod filter;
mod node;
mod summary;
mod usage;
mod what_if;

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
    shell::quote,
};

pub(crate) use summary::Summary;

pub(super) fn routes() -> Router<Arc<Console>> {
    Router::new()
        .route("/gpu", get(all))
        .route("/gpu/{node}", get(one))
}

/// Returns the link to the page of a node's cards.
pub(super) fn link(node: &str) -> String {
    path(&["gpu", node])
}

async fn all(request: PageRequest) -> Result<Response, PageError> {
    if let Some(canonical) = what_if::redirect(&request)? {
        return Ok(Redirect::to(&canonical).into_response());
    }
    let filter = filter::Filter::new(&request)?;
    let view = cluster::view(&request, &filter).await?;
    let info = PageInfo {
        title: "GPU",
        section: "/gpu",
        command: filter.command(),
        live: &[events::TICKS],
    };
    Ok(request.respond(&info, &view, |view| {
        cluster::render(view, &filter, &request)
    }))
}

async fn one(Path(name): Path<String>, request: PageRequest) -> Result<Response, PageError> {
    let view = node::view(&request, &name).await?;
    let title = format!("GPU of {}", view.name());
    let command = format!("gpu top --node {}", quote(view.name()));
    let info = PageInfo {
        title: &title,
        section: "/gpu",
        command: &command,
        live: &[events::TICKS],
    };
    Ok(request.respond(&info, &view, |view| node::render(view, &request)))
}

#[cfg(test)]
mod tests;
