//! The request for a page, and the responses to it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension, Json,
    extract::{FromRequestParts, Query, Request},
    http::{StatusCode, header, request::Parts},
    middleware::Next,
    response::{Html, IntoResponse, Response},
};
use maud::Markup;
use serde::Serialize;
use serde_json::json;
use tautline_runtime::error_text::error_text;

use crate::{Console, draw::clean, layout};

/// A request for a page.
pub(crate) struct PageRequest {
    pub console: Arc<Console>,
    pub path: String,
    /// The fields of the query, without `format`.
    pub query: BTreeMap<String, String>,
    json: bool,
}

/// The data for the frame around a page's content.
pub(crate) struct PageInfo<'a> {
    pub title: &'a str,
    /// The path of the current section in the navigation.
    pub section: &'static str,
    /// The command that prints the same data, without `tautline` and the arguments that select the
    /// cluster, such as `get bindings -A`.
    pub command: &'a str,
    /// The names of the events in [`crate::events`] that refresh the page.
    pub live: &'a [&'static str],
}

/// An error, which is shown as a page or as JSON.
#[derive(Clone, Debug)]
pub(crate) struct PageError {
    status: StatusCode,
    text: String,
}

/// The maximum length of a query. A longer one would be repeated in each link of the page.
const MAX_QUERY_BYTES: usize = 16 << 10;
const MAX_ERROR_CHARS: usize = 2000;

impl FromRequestParts<Arc<Console>> for PageRequest {
    type Rejection = PageError;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &Arc<Console>,
    ) -> Result<Self, PageError> {
        let length = parts.uri.query().map_or(0, str::len);
        if length > MAX_QUERY_BYTES {
            return Err(PageError::bad(format!(
                "the query has {length} bytes, at most {MAX_QUERY_BYTES} are read"
            )));
        }
        let query = Query::<BTreeMap<String, String>>::try_from_uri(&parts.uri);
        let Query(mut query) = query.map_err(|e| PageError::bad(e.to_string()))?;
        let json = match query.remove("format").as_deref() {
            None | Some("html") => false,
            Some("json") => true,
            Some(other) => {
                return Err(PageError::bad(format!(
                    "format={other}: write format=json or leave it out"
                )));
            }
        };
        Ok(Self {
            console: Arc::clone(console),
            path: parts.uri.path().to_owned(),
            query,
            json,
        })
    }
}

impl PageRequest {
    /// Returns a field of the query; `None` if it is absent or empty.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.query
            .get(name)
            .map(String::as_str)
            .filter(|v| !v.is_empty())
    }

    /// Returns a field of the query as a number.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, PageError> {
        let parse = |value: &str| {
            let parsed = value.parse();
            parsed.map_err(|_| PageError::bad(format!("{name}={value}: write a whole number")))
        };
        self.field(name).map(parse).transpose()
    }

    /// Separates the error of an invalid form, which a page shows next to the form. In JSON, this
    /// error is the response, as other errors are.
    pub(crate) fn shown_beside<T>(
        &self,
        result: Result<T, PageError>,
    ) -> Result<(Option<T>, Option<String>), PageError> {
        match result {
            Ok(value) => Ok((Some(value), None)),
            Err(error) if !self.json && error.status == StatusCode::BAD_REQUEST => {
                Ok((None, Some(clean(&error.text, MAX_ERROR_CHARS))))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the link to this page with one field of the query changed or removed.
    pub(crate) fn link(&self, name: &str, value: Option<&str>) -> String {
        let mut query = self.query.clone();
        match value {
            Some(value) => _ = query.insert(name.to_owned(), value.to_owned()),
            None => _ = query.remove(name),
        }
        link(&self.path, &query)
    }

    /// Returns the view as a page or as JSON.
    pub(crate) fn respond<V: Serialize>(
        &self,
        info: &PageInfo<'_>,
        view: &V,
        render: impl FnOnce(&V) -> Markup,
    ) -> Response {
        if self.json {
            return Json(view).into_response();
        }
        html(StatusCode::OK, &layout::page(self, info, &render(view)))
    }
}

/// Returns a path with a query, escaped for a link.
pub(crate) fn link(path: &str, query: &BTreeMap<String, String>) -> String {
    let mut all = path.to_owned();
    for (name, value) in query {
        all.push(if all.contains('?') { '&' } else { '?' });
        all += &format!("{}={}", escaped(name), escaped(value));
    }
    all
}

/// Returns a path of escaped segments, such as `/bindings/shop/web-1`.
pub(crate) fn path(segments: &[&str]) -> String {
    segments
        .iter()
        .map(|s| format!("/{}", escaped(s)))
        .collect()
}

/// Escapes text for a segment of a path or a field of a query.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            other => escaped += &format!("%{other:02X}"),
        }
    }
    escaped
}

impl PageError {
    /// Returns the error for a request that cannot be understood.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            text: text.into(),
        }
    }

    /// Returns the error for an object that does not exist.
    pub(crate) fn absent(text: impl Into<String>) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            text: text.into(),
        }
    }
}

/// Converts an error of the cluster or of a Tautline server, which did not answer.
impl From<anyhow::Error> for PageError {
    fn from(error: anyhow::Error) -> Self {
        Self {
            status: StatusCode::BAD_GATEWAY,
            text: error_text(error.as_ref()),
        }
    }
}

/// The response has no body; [`show_errors`] adds it.
impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        (self.status, Extension(self)).into_response()
    }
}

/// Adds the body of a [`PageError`]: a page, or JSON if the request wants it.
pub(crate) async fn show_errors(request: Request, next: Next) -> Response {
    let uri = request.uri().clone();
    let mut response = next.run(request).await;
    let Some(error) = response.extensions_mut().remove::<PageError>() else {
        return response;
    };
    let text = clean(&error.text, MAX_ERROR_CHARS);
    let fields = uri.query().unwrap_or_default().split('&');
    if fields.into_iter().any(|field| field == "format=json") {
        return (error.status, Json(json!({"error": text}))).into_response();
    }
    // A query that is too long to be read must not be repeated in the page.
    let here = uri.path_and_query().map_or("/", |all| all.as_str());
    let here = if here.len() > MAX_QUERY_BYTES {
        "/"
    } else {
        here
    };
    html(error.status, &layout::error_page(error.status, &text, here))
}

fn html(status: StatusCode, markup: &Markup) -> Response {
    let no_store = [(header::CACHE_CONTROL, "no-store")];
    (status, no_store, Html(markup.0.clone())).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::{self, FakeSource, get};

    fn console() -> Arc<Console> {
        Arc::new(testing::console("", FakeSource::default()))
    }

    #[tokio::test]
    async fn errors_are_pages_or_json() {
        let console = console();
        let (status, page) = get(&console, "/bindings/shop/gone").await;
        assert_eq!(status, 404);
        // A live part that it replaces comes back.
        let live = "id=\"live\" hx-get=\"/bindings/shop/gone\" hx-select=\"#live\"";
        assert!(page.contains(live) && page.contains("there is no binding shop/gone"));
        let (status, body) = get(&console, "/bindings/shop/gone?format=json").await;
        assert_eq!(status, 404);
        assert!(
            body.starts_with(r#"{"error":"there is no binding shop/gone"#),
            "{body}"
        );
        let (status, body) = get(&console, "/gpu?sort=%1b%0a%E2%80%AE&format=json").await;
        assert_eq!(status, 400);
        assert!(!body.contains(['\u{202e}', '\u{1b}', '\n']), "{body}");
    }

    #[tokio::test]
    async fn long_queries_are_refused() {
        let console = console();
        for length in [MAX_QUERY_BYTES - 10, MAX_QUERY_BYTES + 10] {
            let uri = format!("/bindings?q={}", "a".repeat(length));
            let (status, page) = get(&console, &uri).await;
            assert_eq!(status == 200, length < MAX_QUERY_BYTES, "{status}");
            assert!(
                length < MAX_QUERY_BYTES || page.len() < 5_000,
                "{}",
                page.len()
            );
        }
    }

    #[test]
    fn links_are_escaped() {
        let query = [("q".to_owned(), "a&b=\"<ü".to_owned())].into();
        assert_eq!(link("/x", &query), "/x?q=a%26b%3D%22%3C%C3%BC");
        assert_eq!(path(&["a/b", "..", ""]), "/a%2Fb/../");
    }
}
