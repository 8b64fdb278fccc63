//! A request of a page, and its responses.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::{FromRequestParts, Query},
    http::{StatusCode, header, request::Parts},
    response::{Html, IntoResponse, Response},
};
use maud::Markup;
use serde::Serialize;

use crate::{Console, layout};

/// A page's request.
pub(crate) struct PageRequest {
    pub console: Arc<Console>,
    pub path: String,
    /// The fields of the query, without `format`.
    pub query: BTreeMap<String, String>,
    json: bool,
}

/// What surrounds a page's content.
pub(crate) struct PageInfo<'a> {
    pub title: &'a str,
    /// The entry of the navigation that is current, as its path.
    pub section: &'static str,
    /// The command that prints the same, without `tautline` and the arguments that name the
    /// cluster, as `get bindings -A`.
    pub command: &'a str,
    /// Names of the events that make the page show itself again, of [`crate::events`].
    pub live: &'a [&'static str],
}

/// An error as a page.
pub(crate) struct PageError {
    status: StatusCode,
    text: String,
}

impl FromRequestParts<Arc<Console>> for PageRequest {
    type Rejection = PageError;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &Arc<Console>,
    ) -> Result<Self, PageError> {
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
    /// A field of the query; `None` if it is absent or empty.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.query
            .get(name)
            .map(String::as_str)
            .filter(|v| !v.is_empty())
    }

    /// A number of the query.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, PageError> {
        let parse = |value: &str| {
            let parsed = value.parse();
            parsed.map_err(|_| PageError::bad(format!("{name}={value}: write a number")))
        };
        self.field(name).map(parse).transpose()
    }

    /// This page with one field of the query changed, or removed; escaped for a link.
    pub(crate) fn link(&self, name: &str, value: Option<&str>) -> String {
        let mut query = self.query.clone();
        match value {
            Some(value) => _ = query.insert(name.to_owned(), value.to_owned()),
            None => _ = query.remove(name),
        }
        link(&self.path, &query)
    }

    /// The view as a page, or as JSON.
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

/// A path with a query, escaped for a link.
pub(crate) fn link(path: &str, query: &BTreeMap<String, String>) -> String {
    let mut all = path.to_owned();
    for (name, value) in query {
        all.push(if all.contains('?') { '&' } else { '?' });
        all += &format!("{}={}", escaped(name), escaped(value));
    }
    all
}

/// A path of escaped segments, as `/bindings/shop/web-1`.
pub(crate) fn path(segments: &[&str]) -> String {
    segments
        .iter()
        .map(|s| format!("/{}", escaped(s)))
        .collect()
}

/// For a segment of a path, or a field of a query.
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
    /// The request cannot be understood.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            text: text.into(),
        }
    }

    /// The object does not exist.
    pub(crate) fn absent(text: impl Into<String>) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            text: text.into(),
        }
    }
}

/// The cluster, or a server of Tautline, did not answer.
impl From<anyhow::Error> for PageError {
    fn from(error: anyhow::Error) -> Self {
        Self {
            status: StatusCode::BAD_GATEWAY,
            text: format!("{error:#}"),
        }
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        html(self.status, &layout::error_page(self.status, &self.text))
    }
}

fn html(status: StatusCode, markup: &Markup) -> Response {
    let no_store = [(header::CACHE_CONTROL, "no-store")];
    (status, no_store, Html(markup.0.clone())).into_response()
}
