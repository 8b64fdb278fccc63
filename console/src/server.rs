use std::sync::Arc;

use axum::{Router, middleware, routing::get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Console, assets, events, guard, pages, request};

/// Serves the console until `stop`. The listener must be bound to loopback.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: TcpListener,
    console: Arc<Console>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    // Streams of events have no end of their own: the stop does not wait for them.
    let served = axum::serve(listener, router(console));
    tokio::select! {
        result = served => result,
        () = stop.cancelled() => Ok(()),
    }
}

pub(crate) fn router(console: Arc<Console>) -> Router {
    Router::new()
        .merge(pages::routes())
        .route("/events", get(events::serve))
        .route("/assets/{name}", get(assets::serve))
        .fallback(pages::not_found)
        .layer(middleware::from_fn(request::show_errors))
        .layer(middleware::from_fn(guard::guard))
        .with_state(console)
}
