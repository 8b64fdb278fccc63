//! `/bindings` lists every binding, the worst first; `/bindings/NAMESPACE/NAME` shows one binding.

mod badge;
mod detail;
mod filter;
mod list;
mod timeline;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    response::Response,
    routing::get,
};
use k8s_openapi::jiff::Timestamp;

use crate::{
    Console, events,
    request::{PageError, PageInfo, PageRequest, path},
    shell::quote,
};

pub(super) use badge::tone;

pub(super) fn routes() -> Router<Arc<Console>> {
    Router::new()
        .route("/bindings", get(all))
        .route("/bindings/{namespace}/{name}", get(one))
}

/// Returns the link to the page of a binding.
pub(super) fn link(namespace: &str, name: &str) -> String {
    path(&["bindings", namespace, name])
}

async fn all(request: PageRequest) -> Result<Response, PageError> {
    let filter = filter::Filter::new(&request)?;
    let view = list::view(&request, &filter, Timestamp::now())?;
    let command = filter.command();
    let info = PageInfo {
        title: "Bindings",
        section: "/bindings",
        command: &command,
        live: &[events::BINDINGS],
    };
    Ok(request.respond(&info, &view, |view| list::render(view, &filter, &request)))
}

async fn one(
    State(console): State<Arc<Console>>,
    Path((namespace, name)): Path<(String, String)>,
    request: PageRequest,
) -> Result<Response, PageError> {
    let view = detail::view(&console, &namespace, &name).await?;
    let command = format!("describe binding {} -n {}", quote(&name), quote(&namespace));
    let title = format!("Binding {name}");
    let info = PageInfo {
        title: &title,
        section: "/bindings",
        command: &command,
        live: &[events::BINDINGS, events::TICKS],
    };
    Ok(request.respond(&info, &view, detail::render))
}

#[cfg(test)]
mod tests;
