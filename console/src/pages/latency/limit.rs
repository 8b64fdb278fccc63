//! The limit of round-trip times: `?limit=20ms` dims the tiles above it.

use std::time::Duration;

use maud::{Markup, html};
use tautline_core::duration;
use tautline_latency::report::units::exact;

use crate::request::{PageError, PageRequest, link};

/// The positions of the slider, in microseconds.
const STEPS_MICROS: [u64; 13] = [
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000,
];

/// Returns the canonical address for the slider's field `step`; `None` without this field.
pub(super) fn redirect(request: &PageRequest) -> Result<Option<String>, PageError> {
    let Some(step) = request.number::<usize>("step")? else {
        return Ok(None);
    };
    let micros = STEPS_MICROS[step.min(STEPS_MICROS.len() - 1)];
    let mut query = request.query.clone();
    query.remove("step");
    query.insert("limit".to_owned(), exact(micros));
    Ok(Some(link(&request.path, &query)))
}

/// Returns the limit in the address, in microseconds.
pub(super) fn read(request: &PageRequest) -> Result<Option<u64>, PageError> {
    let Some(text) = request.field("limit") else {
        return Ok(None);
    };
    let parsed = duration::parse(text).ok().and_then(micros);
    let parsed = parsed.filter(|micros| *micros > 0);
    let bad = || {
        PageError::bad(format!(
            "limit={}: write a time above 0, as 20ms",
            shown(text)
        ))
    };
    parsed.map(Some).ok_or_else(bad)
}

fn micros(time: Duration) -> Option<u64> {
    u64::try_from(time.as_micros()).ok()
}

fn shown(text: &str) -> String {
    crate::draw::clean(text, 40)
}

/// Renders the slider, and a field for other limits. Both keep the rest of the address.
pub(super) fn form(request: &PageRequest, limit: Option<u64>) -> Markup {
    let at = limit.map_or(STEPS_MICROS.len() - 1, nearest);
    let others: Vec<_> = request
        .query
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "limit" | "step" | "page"))
        .collect();
    html! {
        div .lat-limit {
            form #lat-slider .filter method="get" action="/latency" hx-get="/latency" hx-trigger="change, submit"
                hx-target="#live" hx-push-url="true" {
                @for (name, value) in &others { input type="hidden" name=(name) value=(value); }
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
                @for (name, value) in &others { input type="hidden" name=(name) value=(value); }
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
