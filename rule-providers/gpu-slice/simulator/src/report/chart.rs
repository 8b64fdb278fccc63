//! The chart of a workload: allocated GPU by arrived load, a line for each policy.

use tautline_report::{Axis, Line, LineChart};

use super::WorkloadReport;
use crate::{
    contender::Contender,
    curve::{Curve, MAX_LOAD_PERCENT},
};

/// The load at which the chart begins, in percent: below it all policies place all pods.
const MIN_LOAD_PERCENT: usize = 70;

pub(super) fn draw(part: &WorkloadReport<'_>) -> String {
    let simulated = part.lines.iter().map(|l| (l.policy, &l.curve, false));
    let published = part.lines.iter();
    let published = published.filter_map(|l| Some((l.policy, l.published.as_ref()?, true)));
    // Published lines are dashed and drawn last, to be visible on simulated lines.
    let lines: Vec<_> = simulated.chain(published).map(line).collect();
    let values = lines.iter().flat_map(|l| &l.points);
    let lowest = values.map(|(_, value)| *value).fold(100.0, f64::min);
    let least = ((lowest / 5.0).floor() - 1.0).max(0.0) * 5.0;
    LineChart {
        title: &format!("GPU allocation by arrived load, {}", part.workload),
        x: Axis {
            label: "arrived load, % of all GPU",
            from: MIN_LOAD_PERCENT as f64,
            to: MAX_LOAD_PERCENT as f64,
            marks: marks(MIN_LOAD_PERCENT, MAX_LOAD_PERCENT, 10),
            logarithmic: false,
        },
        y: Axis {
            label: "allocated GPU, %",
            from: least,
            to: 100.0,
            marks: marks(least as usize, 100, 5),
            logarithmic: false,
        },
        lines,
    }
    .svg()
}

fn marks(from: usize, to: usize, step: usize) -> Vec<f64> {
    let marks = (from..=to).step_by(step);
    marks.map(|mark| mark as f64).collect()
}

fn line((policy, curve, published): (Contender, &Curve, bool)) -> Line {
    let loads = curve.iter().enumerate().skip(MIN_LOAD_PERCENT);
    let points = loads.filter_map(|(load, value)| Some((load as f64, (*value)?)));
    Line {
        label: format!("{policy}{}", if published { ", published" } else { "" }),
        // A policy has the same colour in all charts.
        colour: Contender::all().position(|n| n == policy && !published),
        points: points.collect(),
    }
}
