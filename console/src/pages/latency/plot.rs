//! Draws the figures of a pair on one axis: medians, ranges, the prediction's error bar, and
//! limits.

use std::collections::BTreeSet;

use maud::{Markup, html};
use tautline_latency::report::{Direction, PairReport, State, units::short};

use crate::draw::clean;

/// The sizes of the plot, in pixels.
const WIDTH_PX: u64 = 720;
const LEFT_PX: u64 = 170;
const RIGHT_PX: u64 = 30;
const ROW_PX: u64 = 34;
const TOP_PX: u64 = 26;
const MAX_LABEL_CHARS: usize = 22;

/// The horizontal axis, in microseconds from 0.
#[derive(Clone, Copy)]
struct Axis {
    step: u64,
    end: u64,
}

impl Axis {
    /// Returns an axis with at most seven ticks at round figures, the last of which is at or above
    /// `most`.
    fn new(most: u64) -> Self {
        let most = most.max(1);
        let unit = 10_u64.pow(most.ilog10().saturating_sub(1));
        let round = [1, 2, 5, 10, 20, 50].map(|factor| unit.saturating_mul(factor));
        let fits = round.into_iter().find(|step| most.div_ceil(*step) <= 6);
        let step = fits.unwrap_or(unit.saturating_mul(50));
        Self {
            step,
            end: most.div_ceil(step).saturating_mul(step),
        }
    }

    fn x(self, micros: u64) -> u64 {
        let place = u128::from(micros.min(self.end)) * u128::from(WIDTH_PX - LEFT_PX - RIGHT_PX);
        LEFT_PX + u64::try_from(place / u128::from(self.end.max(1))).unwrap_or(0)
    }
}

/// Renders the plot, or nothing if there are no figures.
pub(super) fn render(report: &PairReport) -> Markup {
    let figures = figures(report);
    let Some(most) = figures.iter().max().copied().filter(|most| *most > 0) else {
        return html! {};
    };
    let axis = Axis::new(most);
    let mut measured: Vec<&Direction> = report.directions.iter().collect();
    measured.retain(|d| d.median_micros.is_some() || d.p50_micros.is_some());
    let mut rows = measured.len() as u64;
    let estimate_y = TOP_PX + rows * ROW_PX + ROW_PX / 2;
    rows += u64::from(report.estimate.is_some());
    let configured_y = TOP_PX + rows * ROW_PX + ROW_PX / 2;
    rows += u64::from(report.configured_micros.is_some());
    let height = TOP_PX + rows * ROW_PX + 30;
    html! {
        div .scroll {
            svg .lat-plot width=(WIDTH_PX) height=(height) viewBox={ "0 0 " (WIDTH_PX) " " (height) } role="img"
                aria-label=(description(report)) {
                (ticks(axis, height))
                @for (i, direction) in measured.iter().enumerate() {
                    (direction_row(axis, direction, TOP_PX + i as u64 * ROW_PX + ROW_PX / 2))
                }
                @if let Some(e) = report.estimate {
                    (label("predicted", estimate_y))
                    g .estimate {
                        line x1=(axis.x(e.low_micros)) x2=(axis.x(e.high_micros)) y1=(estimate_y) y2=(estimate_y) {}
                        line x1=(axis.x(e.low_micros)) x2=(axis.x(e.low_micros)) y1=(estimate_y - 6) y2=(estimate_y + 6) {}
                        line x1=(axis.x(e.high_micros)) x2=(axis.x(e.high_micros)) y1=(estimate_y - 6) y2=(estimate_y + 6) {}
                        circle cx=(axis.x(e.rtt_micros)) cy=(estimate_y) r="4.5" {}
                    }
                }
                @if let Some(micros) = report.configured_micros {
                    (label("from a table", configured_y))
                    rect .configured x=(axis.x(micros) - 4) y=(configured_y - 4) width="8" height="8" {}
                }
                @for micros in limits(report) {
                    line .limit x1=(axis.x(micros)) x2=(axis.x(micros)) y1=(TOP_PX - 8) y2=(height - 26) {}
                    text .limit x=(axis.x(micros)) y=(TOP_PX - 12) text-anchor="end" { "limit " (short(micros)) }
                }
            }
        }
        ul .legend {
            @if !measured.is_empty() {
                li { "Bar: p50 to p95 of the last samples" }
                li { "Ring: median of the last five; ticks: after the last visits" }
            }
            @if report.estimate.is_some() { li { "Dashed: predicted, four in five real figures are in its range" } }
            @if !limits(report).is_empty() { li { "Line: a limit of an active rule" } }
        }
    }
}

fn direction_row(axis: Axis, d: &Direction, y: u64) -> Markup {
    html! {
        (label(&format!("{} →", clean(&d.from, MAX_LABEL_CHARS)), y))
        g class=(if d.state == State::Measured { "measured" } else { "measured stale" }) {
            @if let Some((p50, p95)) = d.p50_micros.zip(d.p95_micros) {
                rect x=(axis.x(p50)) y=(y - 5) width=((axis.x(p95) - axis.x(p50).min(axis.x(p95))).max(1)) height="10" {}
            }
            @for window in &d.window_micros {
                line x1=(axis.x(*window)) x2=(axis.x(*window)) y1=(y - 8) y2=(y + 8) {}
            }
            @if let Some(median) = d.median_micros { circle cx=(axis.x(median)) cy=(y) r="4.5" {} }
        }
    }
}

fn label(text: &str, y: u64) -> Markup {
    html! { text .name x=(LEFT_PX - 10) y=(y + 4) text-anchor="end" { (text) } }
}

fn ticks(axis: Axis, height: u64) -> Markup {
    html! {
        @for i in 0..=axis.end / axis.step {
            @let micros = axis.step * i;
            line .tick x1=(axis.x(micros)) x2=(axis.x(micros)) y1=(TOP_PX) y2=(height - 26) {}
            text .tick x=(axis.x(micros)) y=(height - 10) text-anchor="middle" {
                @if i == 0 { "0" } @else { (short(micros)) }
            }
        }
    }
}

/// Returns the limits of the latency rules, without duplicates.
fn limits(report: &PairReport) -> BTreeSet<u64> {
    let rules = report.named_by.iter().filter(|rule| rule.rule == "latency");
    rules.filter_map(|rule| rule.limit_micros).collect()
}

fn figures(report: &PairReport) -> Vec<u64> {
    let of_direction = |d: &Direction| {
        let windows = d.window_micros.iter().copied();
        let all = [d.median_micros, d.p50_micros, d.p95_micros];
        windows.chain(all.into_iter().flatten()).collect::<Vec<_>>()
    };
    let mut all: Vec<u64> = report.directions.iter().flat_map(of_direction).collect();
    all.extend(report.estimate.map(|e| e.high_micros));
    all.extend(report.configured_micros);
    if !all.is_empty() {
        all.extend(limits(report));
    }
    all
}

fn description(report: &PairReport) -> String {
    let directions = report.directions.iter().filter_map(|d| {
        let from = clean(&d.from, MAX_LABEL_CHARS);
        Some(format!("from {from} median {}", short(d.median_micros?)))
    });
    let estimate = report.estimate.map(|e| {
        let (low, high) = (short(e.low_micros), short(e.high_micros));
        format!("predicted {}, {low} to {high}", short(e.rtt_micros))
    });
    let limits = limits(report)
        .into_iter()
        .map(|micros| format!("limit {}", short(micros)));
    let all: Vec<String> = directions.chain(estimate).chain(limits).collect();
    format!("Round-trip times: {}", all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_ends_at_a_round_figure() {
        for (most, step, end) in [
            (0, 1, 1),
            (8_000, 2_000, 8_000),
            (25_000, 5_000, 25_000),
            (26_000, 5_000, 30_000),
            (61, 20, 80),
        ] {
            let axis = Axis::new(most);
            assert_eq!((axis.step, axis.end), (step, end), "{most}");
        }
        let last = Axis::new(u64::MAX);
        assert!(last.end / last.step <= 6 && last.x(u64::MAX) <= WIDTH_PX);
    }
}
