//! The limit of round-trip times: `?limit=20ms` dims the tiles above it.

use maud::{Markup, html};
use tautline_core::duration;
use tautline_latency::report::units::exact;

use crate::{
    form::hidden,
    request::{PageError, PageRequest, PageResult},
};

/// The positions of the slider, in microseconds.
const STEPS_MICROS: [u64; 13] = [
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000,
];

/// Returns the canonical address for the slider's field `step`; `None` without this field.
pub(super) fn redirect(request: &PageRequest) -> PageResult<Option<String>> {
    let Some(step) = request.number::<usize>("step")? else {
        return Ok(None);
    };
    let micros = STEPS_MICROS[step.min(STEPS_MICROS.len() - 1)];
    let limit = exact(micros);
    Ok(Some(
        request.link_without(&["step", "limit"], Some(("limit", &limit))),
    ))
}

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

/// Renders the slider, and a field for other limits. Both keep the rest of the address.
pub(super) fn form(request: &PageRequest, limit: Option<u64>) -> Markup {
    let at = limit.map_or(STEPS_MICROS.len() - 1, nearest);
    let others = || request.fields(|name| !matches!(name, "limit" | "step" | "page"));
    html! {
        div .lat-limit {
            form #lat-slider .filter method="get" action="/latency" hx-get="/latency" hx-trigger="change, submit"
                hx-target="#live" hx-push-url="true" {
                @for (name, value) in others() { (hidden(name, value)) }
                label {
                    span { "Limit: " output { @match limit { Some(micros) => (exact(micros)), None => "none" } } }
                    input #lat-step type="range" name="step" min="0" max=(STEPS_MICROS.len() - 1) step="1" value=(at)
                        list="lat-steps" aria-valuetext=(limit.map_or("none".to_owned(), exact));
                }
                datalist #lat-steps {
                    @for (i, micros) in STEPS_MICROS.iter().enumerate() { option value=(i) label=(exact(*micros)) {} }
                }
                button { "Apply" }
            }
            form #lat-exact .filter method="get" action="/latency" {
                @for (name, value) in others() { (hidden(name, value)) }
                label #lat-other hx-preserve="true" { "Another limit" input name="limit" placeholder="15ms" size="8" required; }
                button { "Set" }
                @if request.field("limit").is_some() { a href=(request.link("limit", None)) { "No limit" } }
            }
        }
    }
}

/// Returns the position of the slider for a limit: the first at or above it, or the last.
fn nearest(limit: u64) -> usize {
    let later = STEPS_MICROS.iter().position(|micros| *micros >= limit);
    later.unwrap_or(STEPS_MICROS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_step_is_at_least_the_limit() {
        assert_eq!(STEPS_MICROS[nearest(20_000)], 20_000);
        assert_eq!(STEPS_MICROS[nearest(15_000)], 20_000);
        assert_eq!((nearest(1), nearest(u64::MAX)), (0, STEPS_MICROS.len() - 1));
    }
}
