//! A line chart: axes with a grid, lines, and a legend to the right.

use std::fmt::Write as _;

use crate::escaped;

/// The size of the whole chart, in pixels.
const WIDTH_PX: f64 = 760.0;
const HEIGHT_PX: f64 = 400.0;
/// The margins around the plot, in pixels.
const LEFT_PX: f64 = 48.0;
/// The margin to the right of the plot, which contains the legend.
const RIGHT_PX: f64 = 150.0;
const TOP_PX: f64 = 34.0;
const BOTTOM_PX: f64 = 44.0;

/// The number of line colours in [`STYLE`].
const COLOUR_COUNT: usize = 5;
const STYLE: &str = "\
    .chart{--ink:#1f2328;--soft:#59636e;--grid:#d8dee4;--p0:#0550ae;--p1:#bc4c00;--p2:#1a7f37;--p3:#8250df;--p4:#57606a}\
    @media(prefers-color-scheme:dark){.chart{--ink:#e6edf3;--soft:#9198a1;--grid:#30363d;--p0:#58a6ff;--p1:#f0883e;--p2:#3fb950;--p3:#bc8cff;--p4:#8b949e}}\
    .chart text{font:12px system-ui,sans-serif;fill:var(--soft)}\
    .chart .title{font-size:14px;font-weight:600;fill:var(--ink)}\
    .chart .grid{stroke:var(--grid);stroke-width:1}\
    .chart .line{fill:none;stroke-width:2;stroke-linejoin:round}\
    .chart .reference{stroke-width:1.5;stroke-dasharray:2 5;stroke-linecap:round}";

/// A chart of lines over two axes, readable on white and on black.
#[derive(Debug, Clone, PartialEq)]
pub struct LineChart<'a> {
    /// The title, which stands above the chart to the left.
    pub title: &'a str,
    /// The horizontal axis; its label stands below.
    pub x: Axis<'a>,
    /// The vertical axis; its label stands above, to the right.
    pub y: Axis<'a>,
    /// The lines, in the order of the legend. Later lines are drawn over earlier ones.
    pub lines: Vec<Line>,
}

/// The range of an axis, and its marks.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis<'a> {
    /// The quantity, with its unit.
    pub label: &'a str,
    /// The value at the start of the axis; above 0 on a logarithmic axis.
    pub from: f64,
    /// The value at the end of the axis.
    pub to: f64,
    /// The values with a grid line.
    pub marks: Vec<f64>,
    /// True if the axis is logarithmic: equal distances are equal ratios.
    pub logarithmic: bool,
}

/// A line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The text in the legend.
    pub label: String,
    /// The number of the colour, modulo 5. A reference line has `None`: it is dashed, in the colour
    /// of the title.
    pub colour: Option<usize>,
    /// The points (x, y) in the units of the axes. Points outside an axis are drawn at its end.
    pub points: Vec<(f64, f64)>,
}

impl Axis<'_> {
    /// Returns the position of a value between the start (0) and the end (1) of the axis.
    fn part(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.logarithmic { value.ln() } else { value };
        let (from, to) = (scale(self.from), scale(self.to));
        ((scale(value) - from) / (to - from)).clamp(0.0, 1.0)
    }
}

impl Line {
    fn class_and_stroke(&self) -> (&'static str, String) {
        match self.colour {
            Some(colour) => ("line", format!("var(--p{})", colour % COLOUR_COUNT)),
            None => ("line reference", "var(--ink)".to_owned()),
        }
    }
}

impl LineChart<'_> {
    /// Returns the chart as one `svg` element, for a separate file or inside HTML.
    #[must_use]
    pub fn svg(&self) -> String {
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" \
             viewBox=\"0 0 {WIDTH_PX} {HEIGHT_PX}\" aria-label=\"{0}\">\
             <style>{STYLE}</style>\
             <text class=\"title\" x=\"{LEFT_PX}\" y=\"18\">{0}</text>",
            escaped(self.title)
        );
        // Writing to a String cannot fail, here and below.
        self.grid(&mut out);
        for line in &self.lines {
            self.line(&mut out, line);
        }
        self.legend(&mut out);
        out.push_str("</svg>\n");
        out
    }

    fn x(&self, value: f64) -> f64 {
        LEFT_PX + self.x.part(value) * (WIDTH_PX - LEFT_PX - RIGHT_PX)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT_PX - BOTTOM_PX - self.y.part(value) * (HEIGHT_PX - TOP_PX - BOTTOM_PX)
    }

    fn grid(&self, out: &mut String) {
        let (right, bottom) = (WIDTH_PX - RIGHT_PX, HEIGHT_PX - BOTTOM_PX);
        for mark in &self.y.marks {
            let y = self.y(*mark);
            _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT_PX}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>",
                LEFT_PX - 8.0,
                y + 4.0
            );
        }
        for mark in &self.x.marks {
            let x = self.x(*mark);
            _ = write!(
                out,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP_PX}\" y2=\"{bottom}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{mark}</text>",
                bottom + 18.0
            );
        }
        _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text x=\"{right}\" y=\"18\" text-anchor=\"end\">{}</text>",
            (LEFT_PX + right) / 2.0,
            HEIGHT_PX - 8.0,
            escaped(self.x.label),
            escaped(self.y.label)
        );
    }

    fn line(&self, out: &mut String, line: &Line) {
        let mut path = String::new();
        for (x, y) in &line.points {
            let start = if path.is_empty() { 'M' } else { 'L' };
            _ = write!(path, "{start}{:.1} {:.1}", self.x(*x), self.y(*y));
        }
        let (class, stroke) = line.class_and_stroke();
        _ = write!(
            out,
            "<path class=\"{class}\" style=\"stroke:{stroke}\" d=\"{path}\"><title>{}</title></path>",
            escaped(&line.label)
        );
    }

    fn legend(&self, out: &mut String) {
        let x = WIDTH_PX - RIGHT_PX + 14.0;
        for (i, line) in self.lines.iter().enumerate() {
            let y = TOP_PX + 12.0 + 20.0 * i as f64;
            let (class, stroke) = line.class_and_stroke();
            _ = write!(
                out,
                "<path class=\"{class}\" style=\"stroke:{stroke}\" d=\"M{x} {:.1}h18\"/>\
                 <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                y - 4.0,
                x + 24.0,
                escaped(&line.label)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> LineChart<'static> {
        LineChart {
            title: "Pairs <within> an error",
            x: Axis {
                label: "relative error",
                from: 0.01,
                to: 1.0,
                marks: vec![0.01, 0.1, 1.0],
                logarithmic: true,
            },
            y: Axis {
                label: "part of pairs, %",
                from: 0.0,
                to: 100.0,
                marks: vec![0.0, 50.0, 100.0],
                logarithmic: false,
            },
            lines: vec![
                Line {
                    label: "ours".to_owned(),
                    colour: Some(0),
                    points: vec![(0.01, 10.0), (0.1, 50.0), (1.0, 100.0)],
                },
                Line {
                    label: "published & old".to_owned(),
                    colour: None,
                    points: vec![(0.001, 0.0), (2.0, 120.0)],
                },
            ],
        }
    }

    #[test]
    fn line_chart() {
        insta::assert_snapshot!(chart().svg().replace("><", ">\n<"));
    }

    #[test]
    fn points_outside_the_axes_are_drawn_at_their_ends() {
        let svg = chart().svg();
        // The corners of the plot.
        assert!(svg.contains("d=\"M48.0 356.0L610.0 34.0\""), "{svg}");
    }

    #[test]
    fn middle_of_a_logarithmic_axis_is_the_geometric_mean() {
        assert!((chart().x.part(0.1) - 0.5).abs() < 1e-9);
    }
}
