//! The chart of a workload: allocated GPU by arrived load, a line for each policy.

use tautline_gpu_placement::policy::PolicyName;
use tautline_svg::{Axis, Line, LineChart};

use super::{ChartLine, WorkloadReport};
use crate::curve::LAST;

/// Below this load all policies place everything.
const FROM: usize = 70;

pub(super) fn draw(part: &WorkloadReport<'_>) -> String {
    let values = part.lines.iter().flat_map(|l| &l.curve[FROM..]);
    let least = values.flatten().copied().fold(100.0, f64::min);
    let least = ((least / 5.0).floor() - 1.0).max(0.0) * 5.0;
    // Published lines are dashed, to be visible on simulated ones.
    let simulated = part.lines.iter().filter(|l| !l.published);
    let published = part.lines.iter().filter(|l| l.published);
    LineChart {
        title: &format!("GPU allocation by arrived load, {}", part.workload),
        x: Axis {
            label: "arrived load, % of all GPU",
            from: FROM as f64,
            to: LAST as f64,
            marks: (FROM..=LAST).step_by(10).map(|load| load as f64).collect(),
            logarithmic: false,
        },
        y: Axis {
            label: "allocated GPU, %",
            from: least,
            to: 100.0,
            marks: (least as usize..=100)
                .step_by(5)
                .map(|percent| percent as f64)
                .collect(),
            logarithmic: false,
        },
        lines: simulated.chain(published).map(line).collect(),
    }
    .svg()
}

fn line(line: &ChartLine) -> Line {
    let (label, colour) = match line.published {
        true => (format!("{}, published", line.policy), None),
        false => (line.policy.to_string(), Some(colour(line.policy))),
    };
    let loads = line.curve.iter().enumerate().skip(FROM);
    Line {
        label,
        colour,
        points: loads
            .filter_map(|(load, value)| Some((load as f64, (*value)?)))
            .collect(),
    }
}

/// A policy has the same colour in all charts.
fn colour(policy: PolicyName) -> usize {
    let mut all = PolicyName::ALL.iter();
    all.position(|n| *n == policy).unwrap_or(0)
}
