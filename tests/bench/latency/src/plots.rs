//! Small line plots as SVG.

use std::fmt::Write;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 48.0;
/// Names of lines stand here.
const RIGHT: f64 = 120.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 38.0;
/// Readable on white and on black, and apart for the colour-blind (Okabe and Ito).
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#888888"];

pub struct Plot<'a> {
    pub title: &'a str,
    pub across: &'a str,
    /// Left, right, and the marks between them.
    pub x: (f64, f64, &'a [f64]),
    /// As a logarithm.
    pub log: bool,
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Plot<'_> {
    /// Values from 0 to 1 over x.
    pub fn svg(&self) -> String {
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"11\" fill=\"#666\">\n\
             <text x=\"{LEFT}\" y=\"16\" font-size=\"13\">{}</text>\n",
            self.title
        );
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for step in 0..=5 {
            let value = f64::from(step) / 5.0;
            let y = self.y(value);
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#8886\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.1}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        for mark in self.x.2 {
            let x = self.at(*mark);
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {bottom}v4\" stroke=\"#888\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{mark}</text>",
                bottom + 16.0
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 6.0,
            self.across
        );
        for ((at, (name, points)), colour) in self.lines.iter().enumerate().zip(COLOURS) {
            let path: Vec<String> = points
                .iter()
                .map(|(x, y)| format!("{:.1} {:.1}", self.at(*x), self.y(*y)))
                .collect();
            let _ = writeln!(
                out,
                "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
                path.join("L"),
                right + 8.0,
                TOP + 12.0 + 16.0 * at as f64
            );
        }
        out.push_str("</svg>\n");
        out
    }

    fn at(&self, x: f64) -> f64 {
        let scale = |x: f64| if self.log { x.ln() } else { x };
        let (from, to) = (scale(self.x.0), scale(self.x.1));
        let part = ((scale(x) - from) / (to - from)).clamp(0.0, 1.0);
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value * (HEIGHT - TOP - BOTTOM)
    }
}
