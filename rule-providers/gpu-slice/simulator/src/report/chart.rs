//! The chart of a workload: allocated GPU by arrived load, a line for each policy.

use tautline_gpu_placement::policy::PolicyName;
use tautline_report::{Axis, Line, LineChart};

use super::{ChartLine, WorkloadReport};
use crate::curve::MAX_LOAD_PERCENT;

/// The load at which the chart begins, in percent: below it all policies place all pods.
const MIN_LOAD_PERCENT: usize = 70;

pub(super) fn draw(part: &WorkloadReport<'_>) -> String {
    let values = part.lines.iter().flat_map(|l| &l.curve[MIN_LOAD_PERCENT..]);
    let lowest = values.flatten().copied().fold(100.0, f64::min);
    let least = ((lowest / 5.0).floor() - 1.0).max(0.0) * 5.0;
    // Published lines are dashed and drawn last, to be visible on simulated lines.
    let simulated = part.lines.iter().filter(|l| !l.published);
    let published = part.lines.iter().filter(|l| l.published);
    LineChart {
        title: &format!("GPU allocation by arrived load, {}", part.workload),
        x: Axis {
            label: "arrived load, % of all GPU",
            from: MIN_LOAD_PERCENT as f64,
            to: MAX_LOAD_PERCENT as f64,
            marks: (MIN_LOAD_PERCENT..=MAX_LOAD_PERCENT)
                .step_by(10)
                .map(|load| load as f64)
                .collect(),
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
    let (label, colour) = if line.published {
        (format!("{}, published", line.policy), None)
    } else {
        (line.policy.to_string(), Some(colour(line.policy)))
    };
    let loads = line.curve.iter().enumerate().skip(MIN_LOAD_PERCENT);
    Line {
        label,
        colour,
        points: loads
            .filter_map(|(load, value)| Some((load as f64, (*value)?)))
            .collect(),
    }
}

/// Returns the index of a policy's colour, which is the same in all charts.
fn colour(policy: PolicyName) -> usize {
    let mut all = PolicyName::ALL.iter();
    all.position(|n| *n == policy).unwrap_or(0)
}
