//! The pages: each module has its views and their rendering.

mod bindings;
mod decisions;
pub(crate) mod gpu;
pub(crate) mod latency;
mod overview;
mod policies;

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::{
    layout::SECTIONS,
    request::{PageError, PageRequest, PageResult, link, redirect},
};

/// Returns the page of a request.
pub(crate) async fn page(request: &PageRequest) -> PageResult {
    let segments = request.path.split('/').skip(1);
    let segments = segments.map(|segment| percent_decode_str(segment).decode_utf8_lossy());
    let segments: Vec<Cow<'_, str>> = segments.collect();
    let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    match segments[..] {
        [""] => overview::page(request).await,
        _ if segments.contains(&"") => not_found(request),
        ["decisions"] => decisions::list(request).await,
        ["decisions", namespace, pod] => decisions::pod(request, namespace, pod).await,
        ["bindings"] => bindings::list(request),
        ["bindings", namespace, name] => bindings::binding(request, namespace, name).await,
        ["gpu"] => gpu::cluster(request).await,
        ["gpu", node] => gpu::node(request, node).await,
        ["latency"] => latency::network(request).await,
        ["latency", "pair", from, to] => latency::pair(request, from, to).await,
        ["policies"] => policies::page(request),
        _ => not_found(request),
    }
}

/// Redirects an address with a slash at its end to the page without it. Other addresses have no
/// page.
fn not_found(request: &PageRequest) -> PageResult {
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
    redirect(307, &link(path, request.fields(|_| true)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::tests;

    #[tokio::test]
    async fn slash_at_the_end_leads_to_the_page() {
        let console = Arc::new(tests::console("", tests::FakeSource::default()));
        for (uri, status) in [
            ("/bindings/", 307),
            ("/bindings/?namespace=shop", 307),
            ("/gpu//", 307),
            ("/bindingss/", 404),
            ("//example.com/", 404),
            ("/nowhere/", 404),
            ("/bindings", 200),
        ] {
            assert_eq!(tests::get(&console, uri).await.0, status, "{uri}");
        }
    }
}
