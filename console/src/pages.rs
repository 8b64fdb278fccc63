//! The pages: each module has its routes, its views and their rendering.

mod bindings;
mod decisions;
pub(crate) mod gpu;
pub(crate) mod latency;
mod overview;
mod policies;

use std::sync::Arc;

use axum::Router;

use crate::{
    Console,
    request::{PageError, PageRequest},
};

pub(crate) fn routes() -> Router<Arc<Console>> {
    Router::new()
        .merge(overview::routes())
        .merge(decisions::routes())
        .merge(bindings::routes())
        .merge(gpu::routes())
        .merge(latency::routes())
        .merge(policies::routes())
}

pub(crate) async fn not_found(request: PageRequest) -> PageError {
    PageError::absent(format!("there is no page {}", request.path))
}
