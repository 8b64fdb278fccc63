//! Draws a matrix as a picture in SVG: <https://www.w3.org/TR/SVG2/>.

use std::fmt::Write;

use tautline_latency::report::{
    Basis, By, MatrixReport,
    scale::{Rgb, Scale},
    units::short,
    words::{self, marked_figure},
};
use tautline_report::escaped;

use crate::table::cut;

const CELL_WIDTH_PX: usize = 52;
const CELL_HEIGHT_PX: usize = 22;
/// The number of names beyond which the cells are squares without figures.
const MAX_NAMES_WITH_FIGURES: usize = 40;
const SQUARE_PX: usize = 8;
const LETTER_WIDTH_PX: usize = 7;
const TITLE_HEIGHT_PX: usize = 60;
const EDGE_PX: usize = 16;
const LEGEND_HEIGHT_PX: usize = 64;
const LEGEND_WIDTH_PX: usize = 200;
const MIN_WIDTH_PX: usize = 540;
/// The maximum width of a name; longer names are cut, and the tooltips have them whole.
const MAX_NAME_COLUMNS: usize = 32;

/// Draws the picture: a title, rows and columns, a legend, and a tooltip for each cell.
pub(super) fn svg(report: &MatrixReport) -> String {
    let count = report.names.len();
    let (wide, high) = if count <= MAX_NAMES_WITH_FIGURES {
        (CELL_WIDTH_PX, CELL_HEIGHT_PX)
    } else {
        (SQUARE_PX, SQUARE_PX)
    };
    let names: Vec<String> = report
        .names
        .iter()
        .map(|n| cut(n, MAX_NAME_COLUMNS))
        .collect();
    let longest = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    let label = longest * LETTER_WIDTH_PX + 8;
    let (left, top) = (EDGE_PX + label, TITLE_HEIGHT_PX + label);
    let width = (left + count * wide + label + EDGE_PX).max(MIN_WIDTH_PX);
    let bottom = top + count * high;
    let height = bottom + LEGEND_HEIGHT_PX;
    let scale = Scale::of(report);
    let what = match report.by {
        By::Zone => "zones (medians over pairs of nodes)",
        By::Node => "nodes",
    };

    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"ui-monospace, monospace\" font-size=\"11\">\n\
         <title>Round-trip times between {what}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{EDGE_PX}\" y=\"30\" font-size=\"14\">Round-trip times between {what}</text>\n"
    );
    // Writing to a String cannot fail, here and below.
    for (i, name) in names.iter().enumerate() {
        let name = escaped(name);
        if wide == CELL_WIDTH_PX || i % 2 == 0 {
            let (x, y) = (left - 6, top + i * high + high / 2 + 4);
            _ = writeln!(
                out,
                "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{name}</text>"
            );
            let (x, y) = (left + i * wide + wide / 2 + 4, top - 6);
            _ = writeln!(
                out,
                "<text transform=\"translate({x} {y}) rotate(-60)\">{name}</text>"
            );
        }
    }
    for (i, row) in report.cells.iter().enumerate() {
        for (j, cell) in row.iter().enumerate() {
            let (x, y) = (left + j * wide, top + i * high);
            let place = cell
                .effective
                .rtt_micros
                .zip(scale)
                .filter(|_| cell.effective.basis != Basis::Same);
            let (fill, ink) = match place {
                Some((micros, scale)) => {
                    let colour = Rgb::at(scale.place(micros));
                    (
                        colour.hex(),
                        if colour.is_bright() { "#000" } else { "#fff" },
                    )
                }
                None if cell.effective.basis == Basis::Unreachable => ("#fff".to_owned(), "#000"),
                None => ("#eee".to_owned(), "#555"),
            };
            let tip = escaped(&words::cell(report, i, j, cell));
            _ = writeln!(
                out,
                "<g><title>{tip}</title><rect x=\"{x}\" y=\"{y}\" width=\"{wide}\" \
                 height=\"{high}\" fill=\"{fill}\" stroke=\"#fff\" stroke-width=\"0.5\"/>"
            );
            let text = marked_figure(cell.effective);
            // Lost pairs have a text at any size, since they have no colour.
            if !text.is_empty() && (wide == CELL_WIDTH_PX || text == "x") {
                let (x, y) = (x + wide / 2, y + high / 2 + 4);
                _ = writeln!(
                    out,
                    "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"{ink}\">{text}</text>"
                );
            }
            out += "</g>\n";
        }
    }
    legend(&mut out, scale, bottom + 20);
    out += "</svg>\n";
    out
}

fn legend(out: &mut String, scale: Option<Scale>, y: usize) {
    if let Some(scale) = scale {
        for i in 0..LEGEND_WIDTH_PX / 4 {
            let place = i as f64 / (LEGEND_WIDTH_PX / 4 - 1) as f64;
            let (x, fill) = (EDGE_PX + i * 4, Rgb::at(place).hex());
            _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"4\" height=\"10\" fill=\"{fill}\"/>"
            );
        }
        for (place, anchor) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
            let x = EDGE_PX as f64 + place * LEGEND_WIDTH_PX as f64;
            let (y, text) = (y + 22, short(scale.micros(place)));
            _ = writeln!(
                out,
                "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"
            );
        }
    }
    let (x, y) = (EDGE_PX + LEGEND_WIDTH_PX + 16, y + 10);
    for (line, text) in [
        "~ estimated, = configured, ? not recently",
        "x unreachable, - nothing known",
    ]
    .iter()
    .enumerate()
    {
        let y = y + line * 14;
        _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\">{text}</text>");
    }
}

#[cfg(test)]
mod tests {
    use tautline_latency::report::EffectiveRtt;

    use super::*;
    use crate::latency::heat::tests::fixtures::{nodes, zones};

    #[test]
    fn svg_of_zones() {
        insta::assert_snapshot!("svg", svg(&zones()));
    }

    #[test]
    fn svg_escapes_names() {
        let mut report = nodes(&["<script>", "b&b"]);
        report.cells[0][1].effective = EffectiveRtt::new(Basis::Measured, 5);
        let svg = svg(&report);
        assert!(!svg.contains("<script>"), "{svg}");
        assert!(
            svg.contains("&lt;script&gt; to b&amp;b: 5us measured"),
            "{svg}"
        );
    }

    #[test]
    fn svg_of_empty_and_large_matrices() {
        assert!(svg(&MatrixReport::default()).ends_with("</svg>\n"));
        let names: Vec<String> = (0..200)
            .map(|i| format!("{i}-{}", "n".repeat(250)))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut report = nodes(&names);
        report.cells[3][4].effective.basis = Basis::Unreachable;
        let svg = svg(&report);
        assert_eq!(svg.matches("<g><title>").count(), 40_000);
        assert_eq!(svg.matches(">x</text>").count(), 1);
        assert!(svg.contains("n…</text>"), "names are cut, tooltips are not");
    }
}
