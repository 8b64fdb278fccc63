//! Draws the last hours of a figure as a small line.

use std::fmt::Write;

use maud::{Markup, html};
use tautline_runtime::history::Series;

/// The size of the drawing, which the style sheet stretches.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;
/// The space above and below the line, for its stroke.
const MARGIN: f64 = 6.0;

/// Renders the line with its summary, or nothing for fewer than two samples. `what` names the
/// figure at the start of a sentence.
pub(crate) fn sparkline(what: &str, series: Option<&Series>) -> Markup {
    series
        .and_then(|series| draw(what, series))
        .unwrap_or_default()
}

fn draw(what: &str, series: &Series) -> Option<Markup> {
    let samples = &series.samples;
    let ((first, _), (last, now)) = (samples.first()?, samples.last()?);
    let minutes = last.checked_sub(*first).filter(|minutes| *minutes > 0)?;
    let values = || samples.iter().map(|(_, value)| *value);
    let (least, greatest) = (values().min()?, values().max()?);
    let (unit, scale) = match &*series.unit {
        "percent" => (" %", greatest.max(100)),
        _ => ("", greatest.max(1)),
    };
    let span = time_span(minutes);
    let text =
        format!("{what} over the last {span}: {least}{unit} to {greatest}{unit}, now {now}{unit}");
    let (mut path, mut previous) = (String::new(), None);
    for (minute, value) in samples {
        let x = minute.saturating_sub(*first) as f64 / minutes as f64 * WIDTH;
        let y = HEIGHT - MARGIN - *value as f64 / scale as f64 * (HEIGHT - 2.0 * MARGIN);
        // The line ends before a gap. A part with one sample is a dot.
        let follows = previous.is_some_and(|p: u64| p.checked_add(1) == Some(*minute));
        let (command, dot) = if follows { ("L", "") } else { ("M", "h0") };
        _ = write!(path, "{command}{x:.0} {y:.0}{dot}");
        previous = Some(*minute);
    }
    Some(html! {
        svg .spark viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" {
            title { (text) }
            path d=(path) {}
        }
        // A screen reader has read it as the title.
        p .dim aria-hidden="true" { (text) }
    })
}

/// Formats a number of minutes, such as `47 minutes` or `3 hours`.
fn time_span(minutes: u64) -> String {
    match minutes {
        1 => "minute".to_owned(),
        0..=119 => format!("{minutes} minutes"),
        _ => format!("{} hours", minutes.saturating_add(30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(unit: &str, samples: &[(u64, u64)]) -> String {
        let series = Series {
            name: "violations".to_owned(),
            unit: unit.to_owned(),
            samples: samples.to_vec(),
        };
        sparkline("Violations", Some(&series)).into_string()
    }

    #[test]
    fn sparkline_has_a_line_and_its_text() {
        let drawn = drawn("bindings", &[(100, 0), (101, 4), (190, 1), (280, 2)]);
        insta::assert_snapshot!(drawn, @r#"<svg class="spark" viewBox="0 0 1000 100" preserveAspectRatio="none" role="img"><title>Violations over the last 3 hours: 0 to 4, now 2</title><path d="M0 94h0L6 6M500 72h0M1000 50h0"></path></svg><p class="dim" aria-hidden="true">Violations over the last 3 hours: 0 to 4, now 2</p>"#);
    }

    #[test]
    fn sparkline_of_percentages_has_a_fixed_scale() {
        let drawn = drawn("percent", &[(7, 50), (8, 100)]);
        assert!(drawn.contains(r#"d="M0 50h0L1000 6""#), "{drawn}");
        let text = "Violations over the last minute: 50 % to 100 %, now 100 %";
        assert!(drawn.contains(text), "{drawn}");
    }

    #[test]
    fn sparkline_of_zeros_is_at_the_bottom() {
        let drawn = drawn("pods", &[(7, 0), (8, 0), (9, 0)]);
        assert!(drawn.contains(r#"d="M0 94h0L500 94L1000 94""#), "{drawn}");
        assert!(drawn.contains("over the last 2 minutes: 0 to 0, now 0"));
    }

    #[test]
    fn sparkline_without_two_minutes_is_left_out() {
        assert_eq!(sparkline("Violations", None).into_string(), "");
        for samples in [&[][..], &[(7, 1)], &[(7, 1), (7, 2)], &[(8, 1), (7, 2)]] {
            assert_eq!(drawn("pods", samples), "");
        }
    }

    #[test]
    fn sparkline_of_odd_values_is_drawn() {
        let drawn = drawn("pods", &[(0, u64::MAX), (u64::MAX, 1)]);
        assert!(drawn.contains("M0 6h0M1000 94h0"), "{drawn}");
    }
}
