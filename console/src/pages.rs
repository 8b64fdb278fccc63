//! The pages: each module has its routes, its views and their rendering.

mod bindings;
mod decisions;
pub(crate) mod gpu;
pub(crate) mod latency;
mod overview;
mod policies;

use std::sync::Arc;

use axum::{Router, response::Redirect};

use crate::{
    Console,
    layout::SECTIONS,
    request::{PageError, PageRequest, link},
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

/// Redirects an address with a slash at its end to the page without it. Other addresses have no
/// page.
pub(crate) async fn not_found(request: PageRequest) -> Result<Redirect, PageError> {
    let path = request.path.trim_end_matches('/');
    // Only addresses of sections are redirected: `//host/` would lead to another server.
    let is_known = SECTIONS.iter().any(|(section, _)| {
        let rest = path.strip_prefix(section);
        *section != "/" && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    if path == request.path || !is_known {
        return Err(PageError::absent(format!(
            "there is no page {}",
            request.path
        )));
    }
    Ok(Redirect::temporary(&link(path, &request.query)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::testing;

    #[tokio::test]
    async fn slash_at_the_end_leads_to_the_page() {
        let console = Arc::new(testing::console("", testing::FakeSource::default()));
        for (uri, status) in [
            ("/bindings/", 307),
            ("/bindings/?namespace=shop", 307),
            ("/gpu//", 307),
            ("/bindingss/", 404),
            ("//example.com/", 404),
            ("/nowhere/", 404),
            ("/bindings", 200),
        ] {
            assert_eq!(testing::get(&console, uri).await.0, status, "{uri}");
        }
    }
}
