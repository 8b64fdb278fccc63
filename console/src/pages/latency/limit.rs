//! The limit of round-trip times: `?limit=20ms` dims the tiles above it.

use maud::{Markup, html};
use tautline_core::duration;

use crate::{
    form::hidden,
    request::{PageError, PageRequest, PageResult},
};

/// Returns the limit in the address, in microseconds.
pub(super) fn read(request: &PageRequest) -> PageResult<Option<u64>> {
    let Some(text) = request.field("limit") else {
        return Ok(None);
    };
    let parsed = duration::parse(text).ok();
    let micros = parsed.and_then(|limit| u64::try_from(limit.as_micros()).ok());
    let bad = || PageError::bad(format!("limit={text}: write a time above 0, as 20ms"));
    let positive = micros.filter(|micros| *micros > 0);
    positive.map(Some).ok_or_else(bad)
}

/// Renders the field of the limit, which keeps the rest of the address.
pub(super) fn form(request: &PageRequest) -> Markup {
    html! {
        form .filter method="get" action="/latency" {
            @for (name, value) in request.fields(|name| !matches!(name, "limit" | "page")) { (hidden(name, value)) }
            label #lat-limit hx-preserve="true" {
                "Limit" input name="limit" value=[request.field("limit")] placeholder="15ms" size="8" required;
            }
            button { "Set" }
            @if request.field("limit").is_some() { a href=(request.link("limit", None)) { "No limit" } }
        }
    }
}
