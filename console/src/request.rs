//! The request for a page, and the responses to it.

use std::{collections::BTreeMap, str::FromStr, sync::Arc};

use anyhow::Context;
use hyper::{StatusCode, Uri};
use maud::{Markup, html};
use serde::Serialize;
use serde_json::json;
use tautline_runtime::{
    error_text::error_text,
    http::{self, HttpResponse},
};

use crate::{
    Console,
    draw::{clean, cleaned_texts},
    layout,
    links::link,
};

/// A request for a page.
pub(crate) struct PageRequest {
    pub console: Arc<Console>,
    pub path: String,
    /// The fields of the query, without `format`.
    pub query: BTreeMap<String, String>,
    json: bool,
}

/// An error, which is shown as a page or as JSON.
#[derive(Clone, Debug)]
pub(crate) struct PageError {
    status: StatusCode,
    text: String,
}

/// The result of a page.
pub(crate) type PageResult<T = HttpResponse> = Result<T, PageError>;

/// The maximum length of a query. A longer one would be repeated in each link of the page.
const MAX_QUERY_BYTES: usize = 16 << 10;
/// The prefix of the query's fields with weights of rules, which sliders set.
pub(crate) const WEIGHT_PREFIX: &str = "weight.";
/// The limit for a text: an error, or a value in JSON.
const MAX_TEXT_CHARS: usize = 2000;
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

impl PageRequest {
    pub(crate) fn new(console: &Arc<Console>, uri: &Uri) -> PageResult<Self> {
        let query = uri.query().unwrap_or_default();
        let length = query.len();
        if length > MAX_QUERY_BYTES {
            return Err(PageError::bad(format!(
                "the query has {length} bytes, at most {MAX_QUERY_BYTES} are read"
            )));
        }
        let mut request = Self {
            console: Arc::clone(console),
            // `//host` would be the address of another server.
            path: format!("/{}", uri.path().trim_matches('/')),
            query: form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
            json: false,
        };
        let format = request.choice("format", &[("html", false), ("json", true)])?;
        request.json = format.unwrap_or(false);
        request.query.remove("format");
        Ok(request)
    }

    /// Returns a field of the query; `None` if it is absent or empty.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let value = self.query.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// Returns whether the query has one of the fields.
    pub(crate) fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.field(name).is_some())
    }

    /// Returns a field of the query as a number.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> PageResult<Option<T>> {
        let parse = |value: &str| {
            let parsed = value.parse();
            parsed.map_err(|_| PageError::bad(format!("{name}={value}: write a whole number")))
        };
        self.field(name).map(parse).transpose()
    }

    /// Returns the choice that a field of the query names.
    pub(crate) fn choice<T: Copy>(
        &self,
        name: &str,
        choices: &[(&str, T)],
    ) -> PageResult<Option<T>> {
        let Some(value) = self.field(name) else {
            return Ok(None);
        };
        let chosen = choices
            .iter()
            .find(|(choice, _)| choice.eq_ignore_ascii_case(value));
        let all: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
        let error = || PageError::bad(format!("{name}={value}: write one of {}", all.join(", ")));
        chosen.map(|(_, choice)| Some(*choice)).ok_or_else(error)
    }

    /// Returns the fields of the query with a value that `keep` selects by their name.
    pub(crate) fn fields(&self, keep: impl Fn(&str) -> bool) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.query.iter();
        let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_str()));
        pairs.filter(move |(name, value)| !value.is_empty() && keep(name))
    }

    /// Returns the link to this page with one field of the query changed or removed.
    pub(crate) fn link(&self, name: &str, value: Option<&str>) -> String {
        self.link_without(&[name], value.map(|value| (name, value)))
    }

    /// Returns the link to this page without some fields of the query, and with another one.
    pub(crate) fn link_without(&self, names: &[&str], field: Option<(&str, &str)>) -> String {
        let mut fields: BTreeMap<_, _> = self.fields(|name| !names.contains(&name)).collect();
        fields.extend(field);
        link(&self.path, fields)
    }

    /// Returns the view as a page or as JSON. `command` prints the same data; it lacks `tautline` and
    /// the arguments that select the cluster. The page refreshes itself unless sliders are moved, which
    /// must not be replaced.
    pub(crate) fn respond<V: Serialize>(
        &self,
        title: &str,
        command: &str,
        view: &V,
        render: impl FnOnce(&V) -> Markup,
    ) -> PageResult {
        if self.json {
            let json = serde_json::to_value(view).context("the page cannot be written")?;
            let json = cleaned_texts(json, MAX_TEXT_CHARS).to_string();
            return Ok(http::respond(200, JSON, json));
        }
        let here = self.link("format", None);
        let command = self.console.command(command);
        let footer = html! {
            footer {
                p { (command.0) code { (command.1) } }
                p { a href=(self.link("format", Some("json"))) { "JSON" } " · read-only" }
            }
        };
        let place = (title, &*here);
        let is_live = !self
            .query
            .keys()
            .any(|name| name.starts_with(WEIGHT_PREFIX));
        let page = layout::document(&self.console, place, is_live, &render(view), &footer);
        Ok(http::respond(200, HTML, page.0))
    }
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

    /// Returns the error as a page, or as JSON if the request wants it.
    pub(crate) fn respond(&self, console: &Console, uri: &Uri) -> HttpResponse {
        let status = self.status.as_u16();
        let text = clean(&self.text, MAX_TEXT_CHARS);
        let mut fields = uri.query().unwrap_or_default().split('&');
        if fields.any(|field| field == "format=json") {
            return http::respond(status, JSON, json!({"error": text}).to_string());
        }
        // A query that is too long to be read must not be repeated in the page.
        let here = uri.path_and_query().map(|all| all.as_str());
        let here = here.filter(|here| here.len() <= MAX_QUERY_BYTES);
        let title = self.status.canonical_reason().unwrap_or("Error");
        let place = (title, here.unwrap_or("/"));
        let content = html! { p .error role="alert" { (text) } };
        // As a live part, it is replaced by the page once that can be shown again.
        let page = layout::document(console, place, true, &content, &html! {});
        http::respond(status, HTML, page.0)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tests::{self, FakeSource, get};

    fn console() -> Arc<Console> {
        Arc::new(tests::console("", FakeSource::default()))
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
}
