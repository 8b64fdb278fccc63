//! Draws a matrix as a picture in SVG, for a file of its own: <https://www.w3.org/TR/SVG2/>.

use maud::{Markup, PreEscaped, html};
use tautline_latency::report::{
    By, MatrixReport,
    scale::{Rgb, Scale},
    units::short,
};

use super::tiles::{Layout, Tiles};

/// The number of names up to which tiles show their figures.
const MAX_NAMES_WITH_FIGURES: usize = 40;
const EDGE_PX: usize = 16;
const TITLE_HEIGHT_PX: usize = 44;
const LEGEND_HEIGHT_PX: usize = 64;
const LEGEND_WIDTH_PX: usize = 200;
const MIN_WIDTH_PX: usize = 540;
const STYLE: &str = "text{font:12px ui-monospace,monospace}.ink{text-anchor:middle}.light{fill:#fff}\
    .t:not([fill]){fill:#eee}.lost{stroke:#b3261e}.estimated,.configured,.old{stroke:#000}\
    .estimated{stroke-dasharray:3 2}.old{stroke-dasharray:1 2}";

/// Draws the picture on white: a title, rows and columns with tooltips, and a legend.
pub fn picture(report: &MatrixReport) -> String {
    let what = match report.by {
        By::Zone => "zones (medians over pairs of nodes)",
        By::Node => "nodes",
    };
    let title = format!("Round-trip times between {what}");
    let layout = Layout::new(&report.names, MAX_NAMES_WITH_FIGURES);
    let scale = Scale::of(report);
    let (width, height) = layout.size();
    let bottom = TITLE_HEIGHT_PX + height;
    let width = (width + 2 * EDGE_PX).max(MIN_WIDTH_PX);
    let tiles = Tiles {
        report,
        limit: None,
        row: &|_| None,
        tile: &|_, _| None,
        is_sized: true,
    };
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(bottom + LEGEND_HEIGHT_PX) role="img" {
            style { (PreEscaped(STYLE)) }
            title { (title) }
            rect width="100%" height="100%" fill="#fff" {}
            text x=(EDGE_PX) y="30" { (title) }
            g transform={ "translate(" (EDGE_PX) " " (TITLE_HEIGHT_PX) ")" } { (tiles.matrix(&layout, scale)) }
            g transform={ "translate(" (EDGE_PX) " " (bottom + 20) ")" } { (legend(scale)) }
        }
    };
    picture.0 + "\n"
}

fn legend(scale: Option<Scale>) -> Markup {
    /// The number of colours in the legend, each 4 px wide.
    const LEGEND_COLOURS: usize = LEGEND_WIDTH_PX / 4;
    html! {
        @if let Some(scale) = scale {
            @for i in 0..LEGEND_COLOURS {
                rect x=(i * 4) width="4" height="10" fill=(Rgb::at(i as f64 / (LEGEND_COLOURS - 1) as f64).hex()) {}
            }
            @for (place, anchor) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
                text x=(place * LEGEND_WIDTH_PX as f64) y="22" text-anchor=(anchor) { (short(scale.micros(place))) }
            }
        }
        text x=(LEGEND_WIDTH_PX + EDGE_PX) y="10" { "~ estimated, = configured, ? not recently" }
        text x=(LEGEND_WIDTH_PX + EDGE_PX) y="24" { "x unreachable, - nothing known" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_has_escaped_names_figures_and_tooltips() {
        let report = serde_json::json!({"by": "node", "names": ["a<b", "c"], "cells": [
            [{"basis": "same", "rttMicros": 0}, {"basis": "measured", "rttMicros": 1_200}],
            [{"basis": "unreachable"}, {"basis": "same", "rttMicros": 0}]]});
        let picture = picture(&serde_json::from_value(report).unwrap());
        for part in [
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"540\"",
            ">a&lt;b</text>",
            "1.2ms",
            "a&lt;b to c: ",
            "width=\"56\" height=\"24\"",
            "t lost",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
        assert!(!picture.contains("<b"), "{picture}");
    }
}
