//! Draws small graphics, and shows untrusted texts, times and durations.

use std::{borrow::Cow, time::Duration};

use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;
use serde_json::Value;
use tautline_api::{constraint::Compliance, display::age};
use tautline_core::text::sanitize;
use tautline_runtime::error_text::error_text;

const MAX_TEXT_CHARS: usize = 600;
const MAX_ERROR_CHARS: usize = 1000;

/// Returns untrusted text in one line, cut after `max` characters with an ellipsis.
pub(crate) fn clean(text: &str, max: usize) -> String {
    let mut shown = sanitize(text, max).into_owned();
    if text.chars().nth(max).is_some() {
        shown.push('…');
    }
    shown
}

/// Returns untrusted text in one line, cut to a few sentences.
pub(crate) fn clean_text(text: &str) -> String {
    clean(text, MAX_TEXT_CHARS)
}

/// Cleans all texts of JSON like [`clean`], but not the names of fields, and leaves out the fields
/// that have no value.
pub(crate) fn cleaned_texts(json: Value, max: usize) -> Value {
    match json {
        Value::String(text) => Value::String(clean(&text, max)),
        Value::Array(items) => {
            let items = items.into_iter().map(|item| cleaned_texts(item, max));
            items.collect()
        }
        Value::Object(fields) => {
            let known = fields.into_iter().filter(|(_, value)| !value.is_null());
            let fields = known.map(|(name, value)| (name, cleaned_texts(value, max)));
            Value::Object(fields.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => json,
    }
}

/// Returns an error for the user, in one line.
pub(crate) fn error_line(error: &anyhow::Error) -> String {
    clean(&error_text(error.as_ref()), MAX_ERROR_CHARS)
}

/// Returns what was read. For an error, it adds a problem that begins with `what`, and returns the
/// default.
pub(crate) fn or_problem<T: Default>(
    read: anyhow::Result<T>,
    what: &str,
    problems: &mut Vec<String>,
) -> T {
    read.unwrap_or_else(|error| {
        problems.push(format!("{what}{}", error_line(&error)));
        T::default()
    })
}

/// Renders a note in place of objects that an incomplete list lacks.
pub(crate) fn not_known() -> Markup {
    html! { p .note { "Not known: see above what is missing." } }
}

/// Renders items with commas between them.
pub(crate) fn joined(items: impl IntoIterator<Item = Markup>) -> Markup {
    html! {
        @for (i, item) in items.into_iter().enumerate() {
            @if i > 0 { ", " }
            (item)
        }
    }
}

/// Renders the problems of an object or a page, if there are any.
pub(crate) fn problems(problems: &[String]) -> Markup {
    html! {
        @if !problems.is_empty() {
            ul .problems { @for problem in problems { li { (problem) } } }
        }
    }
}

/// Renders a state with the colour of a CSS class.
pub(crate) fn state(tone: &str, text: &str) -> Markup {
    html! { span class={ "state " (tone) } { (text) } }
}

/// Returns the CSS class for the colour of a compliance.
pub(crate) fn tone(compliance: &str) -> &'static str {
    match compliance {
        "Error" | "Violation" => "bad",
        "Limit" => "near",
        "Compliant" => "good",
        _ => "none",
    }
}

/// Renders the name of a compliance with its colour.
pub(crate) fn badge(compliance: &str) -> Markup {
    state(tone(compliance), compliance)
}

/// The number of bindings with a compliance.
#[derive(Debug, Serialize)]
pub(crate) struct Count {
    compliance: Compliance,
    count: usize,
}

impl Count {
    /// Returns the numbers of bindings, by the rank of their compliance.
    pub(crate) fn all(counts: [usize; Compliance::WORST_FIRST.len()]) -> Vec<Self> {
        let all = Compliance::WORST_FIRST.into_iter().zip(counts);
        all.map(|(compliance, count)| Self { compliance, count })
            .collect()
    }

    pub(crate) fn is_none(&self) -> bool {
        self.count == 0
    }
}

/// Renders the share of each compliance, as one bar and as links that `link` gives, to the bindings
/// with a compliance. `chosen` is the compliance that the page shows.
pub(crate) fn counts<'a>(
    counts: impl Iterator<Item = &'a Count> + Clone,
    chosen: Option<Compliance>,
    link: impl Fn(&str) -> String,
) -> Markup {
    let name = |count: &Count| count.compliance.name();
    let parts = counts
        .clone()
        .map(|c| (tone(name(c)), name(c), c.count as u64));
    html! {
        (share("Bindings", parts))
        ul .counts {
            @for c in counts {
                li {
                    a href=(link(name(c))) aria-current=[(chosen == Some(c.compliance)).then_some("true")] {
                        (badge(name(c))) " " b { (c.count) }
                    }
                }
            }
        }
    }
}

/// Renders a bar of parts. Each part has a CSS class, a label and an amount.
pub(crate) fn share<'a>(
    what: &str,
    parts: impl Iterator<Item = (&'a str, &'a str, u64)> + Clone,
) -> Markup {
    let total: u64 = parts.clone().map(|(.., amount)| amount).sum();
    let labels = parts.clone().filter(|(.., amount)| *amount > 0);
    let labels: Vec<String> = labels
        .map(|(_, label, amount)| format!("{amount} {label}"))
        .collect();
    let mut before = 0;
    html! {
        @if total > 0 {
            svg .share viewBox="0 0 1000 30" preserveAspectRatio="none" role="img"
                aria-label={ (what) ": " (labels.join(", ")) } {
                @for (class, _, amount) in parts {
                    @if amount > 0 {
                        // A small part stays visible.
                        rect class=(class) x=(before * 1000 / total) y="0" width=((amount * 1000 / total).max(4)) height="30" {}
                        ({ before += amount; "" })
                    }
                }
            }
        }
    }
}

/// Formats thousandths of cards as cards, such as `0.25` or `491.4`.
pub(crate) fn cards_of(milli: i64) -> String {
    let decimals = usize::from(milli < 10_000) + 1;
    let text = format!("{:.decimals$}", milli as f64 / 1000.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats thousandths of cards with their noun, such as `1.25 cards`.
pub(crate) fn cards(milli: i64) -> String {
    let noun = if milli == 1000 { "card" } else { "cards" };
    format!("{} {noun}", cards_of(milli))
}

/// Rewrites a request such as `250m of a card` as `0.25 of a card`.
pub(crate) fn in_cards(request: &str) -> Cow<'_, str> {
    let parts = request.split_once("m of ");
    match parts.and_then(|(milli, rest)| Some((milli.parse().ok()?, rest))) {
        Some((milli, rest)) => Cow::Owned(format!("{} of {rest}", cards_of(milli))),
        None => Cow::Borrowed(request),
    }
}

/// Renders the sign of a CSS class in a legend.
pub(crate) fn key(class: &str) -> Markup {
    html! {
        svg .key viewBox="0 0 14 14" aria-hidden="true" {
            rect class=(class) width="14" height="14" {}
        }
    }
}

/// Converts milliseconds since 1970 to a time; a time out of range becomes 1970.
pub(crate) fn of_millis(millis: u64) -> Timestamp {
    let millis = i64::try_from(millis).unwrap_or_default();
    Timestamp::from_millisecond(millis).unwrap_or_default()
}

/// Renders the age of a time, with the time in UTC as a title.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> Markup {
    let time = age::second(then);
    html! { time datetime=(time) title=(time) { (age::since(then, now)) " ago" } }
}

/// Formats a duration in microseconds, such as `350us`, `1.2ms` or `3.51s`: with three digits below
/// one second, otherwise rounded to 10 ms.
pub(crate) fn micros(micros: u64) -> String {
    let unit = match micros {
        0..1_000 => 1,
        1_000..1_000_000 => 10_u64.pow(micros.ilog10() - 2),
        _ => 10_000,
    };
    let rounded = (micros.saturating_add(unit / 2) / unit).saturating_mul(unit);
    tautline_core::duration::format(Duration::from_micros(rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_has_parts_and_their_text() {
        let drawn = share(
            "Bindings",
            [("bad", "Violation", 1), ("good", "Compliant", 3)].into_iter(),
        );
        insta::assert_snapshot!(drawn.into_string(), @r#"<svg class="share" viewBox="0 0 1000 30" preserveAspectRatio="none" role="img" aria-label="Bindings: 1 Violation, 3 Compliant"><rect class="bad" x="0" y="0" width="250" height="30"></rect><rect class="good" x="250" y="0" width="750" height="30"></rect></svg>"#);
        let none = share("Bindings", [("bad", "Violation", 0)].into_iter());
        assert_eq!(none.into_string(), "");
    }

    #[test]
    fn cards_have_few_decimals() {
        for (milli, text) in [
            (0, "0"),
            (250, "0.25"),
            (10_000, "10"),
            (14_900, "14.9"),
            (491_350, "491.4"),
            (1_600_000, "1600"),
        ] {
            assert_eq!(cards_of(milli), text);
        }
        assert_eq!(cards(1250), "1.25 cards");
        assert_eq!(cards(1000), "1 card");
        assert_eq!(in_cards("250m of a card, 2 CPU"), "0.25 of a card, 2 CPU");
        assert_eq!(in_cards("no GPU"), "no GPU");
    }

    #[test]
    fn clean_cuts_with_an_ellipsis() {
        assert_eq!(clean("abc", 3), "abc");
        assert_eq!(clean("abcd\n", 3), "abc…");
        assert_eq!(clean("a\u{202e}b", 9), "a\u{fffd}b");
    }

    #[test]
    fn micros_has_three_figures() {
        for (value, text) in [
            (0, "0s"),
            (7, "7us"),
            (999, "999us"),
            (1_234, "1.23ms"),
            (12_345, "12.3ms"),
            (123_456, "123ms"),
            (3_514_999, "3.51s"),
            (u64::MAX, micros(u64::MAX).as_str()),
        ] {
            assert_eq!(micros(value), text, "{value}");
        }
    }

    #[test]
    fn ago_names_the_time() {
        let now: Timestamp = "2026-01-02T12:00:00Z".parse().unwrap();
        let then = of_millis(1_767_355_195_400);
        let text = ago(then, now).into_string();
        assert_eq!(
            text,
            "<time datetime=\"2026-01-02T11:59:55Z\" title=\"2026-01-02T11:59:55Z\">5s ago</time>"
        );
        assert_eq!(of_millis(u64::MAX), Timestamp::UNIX_EPOCH);
    }
}
