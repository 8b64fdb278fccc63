//! An SVG chart of allocated GPU by arrived load, a line for each policy.

use std::fmt::Write as _;

use tautline_gpu_placement::policy::PolicyName;

use super::{ChartLine, WorkloadReport};
use crate::curve::LAST;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
/// Below this load all policies place everything.
const FROM: usize = 70;

const STYLE: &str = "\
    .chart{--ink:#1f2328;--soft:#59636e;--grid:#d8dee4;--p0:#0550ae;--p1:#bc4c00;--p2:#1a7f37;--p3:#8250df;--p4:#57606a}\
    @media(prefers-color-scheme:dark){.chart{--ink:#e6edf3;--soft:#9198a1;--grid:#30363d;--p0:#58a6ff;--p1:#f0883e;--p2:#3fb950;--p3:#bc8cff;--p4:#8b949e}}\
    .chart text{font:12px system-ui,sans-serif;fill:var(--soft)}\
    .chart .title{font-size:14px;font-weight:600;fill:var(--ink)}\
    .chart .grid{stroke:var(--grid);stroke-width:1}\
    .chart .line{fill:none;stroke-width:2;stroke-linejoin:round}\
    .chart .published{stroke-width:1.5;stroke-dasharray:2 5;stroke-linecap:round}";

struct Scale {
    least: f64,
}

impl Scale {
    fn x(load: f64) -> f64 {
        let part = (load - FROM as f64) / (LAST - FROM) as f64;
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, percent: f64) -> f64 {
        let part = (percent - self.least) / (100.0 - self.least);
        HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    }
}

fn colour(policy: PolicyName) -> String {
    let number = PolicyName::ALL
        .iter()
        .position(|n| *n == policy)
        .unwrap_or(0);
    format!("var(--p{})", number % 5)
}

pub(super) fn draw(part: &WorkloadReport<'_>) -> String {
    let values = part.lines.iter().flat_map(|l| &l.curve[FROM..]);
    let least = values.flatten().copied().fold(100.0, f64::min);
    let scale = Scale {
        least: (least / 5.0).floor() * 5.0 - if least < 5.0 { 0.0 } else { 5.0 },
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" aria-label=\"GPU allocation by arrived load, {0}\">\
         <style>{STYLE}</style>\
         <text class=\"title\" x=\"{LEFT}\" y=\"18\">{0}</text>",
        super::escaped(part.workload)
    );
    grid(&mut out, &scale);
    for published in [false, true] {
        for line in part.lines.iter().filter(|l| l.published == published) {
            path(&mut out, &scale, line);
        }
    }
    legend(&mut out, &part.lines);
    out.push_str("</svg>\n");
    out
}

fn grid(out: &mut String, scale: &Scale) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let mut percent = scale.least;
    while percent <= 100.0 {
        let y = scale.y(percent);
        _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{percent:.0}</text>",
            LEFT - 8.0,
            y + 4.0
        );
        percent += 5.0;
    }
    for load in (FROM..=LAST).step_by(10) {
        let x = Scale::x(load as f64);
        _ = write!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{load}</text>",
            bottom + 18.0
        );
    }
    _ = write!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">arrived load, % of all GPU</text>\
         <text x=\"{right}\" y=\"18\" text-anchor=\"end\">allocated GPU, %</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 8.0
    );
}

fn path(out: &mut String, scale: &Scale, line: &ChartLine) {
    let mut points = String::new();
    for (load, value) in line.curve.iter().enumerate().skip(FROM) {
        if let Some(value) = value {
            let start = if points.is_empty() { 'M' } else { 'L' };
            _ = write!(
                points,
                "{start}{:.1} {:.1}",
                Scale::x(load as f64),
                scale.y(*value)
            );
        }
    }
    let (class, stroke) = line_style(line);
    _ = write!(
        out,
        "<path class=\"{class}\" style=\"stroke:{stroke}\" d=\"{points}\"><title>{}</title></path>",
        label(line)
    );
}

/// Published lines are dashed and dark, to be visible on simulated ones.
fn line_style(line: &ChartLine) -> (&'static str, String) {
    match line.published {
        true => ("line published", "var(--ink)".to_owned()),
        false => ("line", colour(line.policy)),
    }
}

fn label(line: &ChartLine) -> String {
    let of = if line.published { ", published" } else { "" };
    format!("{}{of}", line.policy)
}

fn legend(out: &mut String, lines: &[ChartLine]) {
    let x = WIDTH - RIGHT + 14.0;
    for (i, line) in lines.iter().enumerate() {
        let y = TOP + 12.0 + 20.0 * i as f64;
        let (class, stroke) = line_style(line);
        _ = write!(
            out,
            "<path class=\"{class}\" style=\"stroke:{stroke}\" d=\"M{x} {:.1}h18\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            y - 4.0,
            x + 24.0,
            label(line)
        );
    }
}
