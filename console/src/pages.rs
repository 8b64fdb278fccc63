//! The pages: each module has its views and their rendering.

mod bindings;
mod decisions;
mod gpu;
mod latency;
mod overview;
mod policies;
pub(crate) mod search;

pub use self::latency::picture::picture as latency_picture;

use std::{borrow::Cow, sync::Arc};

use hyper::Uri;
use percent_encoding::percent_decode_str;
use tautline_runtime::http::HttpResponse;

use crate::{
    Console,
    request::{PageError, PageRequest, PageResult},
};

/// Returns the page of an address, or the error in its place.
pub(crate) async fn answer(console: &Arc<Console>, uri: &Uri) -> HttpResponse {
    let page = async { page(&PageRequest::new(console, uri)?).await };
    let page = page.await;
    page.unwrap_or_else(|error| error.respond(console, uri))
}

/// Returns the page of a request.
async fn page(request: &PageRequest) -> PageResult {
    let segments = request.path.split('/').skip(1);
    let segments = segments.map(|segment| percent_decode_str(segment).decode_utf8_lossy());
    let segments: Vec<Cow<'_, str>> = segments.collect();
    let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    match segments[..] {
        [""] => overview::page(request).await,
        ["decisions"] => decisions::page(request).await,
        ["decisions", namespace, pod] => decisions::pod::page(request, namespace, pod).await,
        ["bindings"] => bindings::page(request),
        ["bindings", namespace, name] => bindings::detail::page(request, namespace, name).await,
        ["gpu"] => gpu::page(request).await,
        ["gpu", node] => gpu::node::page(request, node).await,
        ["latency"] => latency::page(request).await,
        ["latency", "pair", from, to] => latency::pair::page(request, from, to).await,
        ["policies"] => policies::page(request),
        ["search"] => search::page(request),
        _ => Err(PageError::absent(format!(
            "there is no page {}",
            request.path
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::tests;

    #[tokio::test]
    async fn slash_at_the_end_does_not_matter() {
        let console = Arc::new(tests::console("", tests::FakeSource::default()));
        for (uri, status) in [
            ("/bindings/", 200),
            ("/bindings/?namespace=shop", 200),
            ("/gpu//", 200),
            ("/bindingss/", 404),
            ("//example.com/", 404),
            ("//gpu", 200),
            ("/nowhere/", 404),
            ("/bindings", 200),
        ] {
            let (found, page) = tests::get(&console, uri).await;
            assert_eq!(found, status, "{uri}");
            // A link must not lead to another server.
            assert!(!page.contains("href=\"//"), "{uri}: {page}");
        }
    }
}
