//! Descriptions of figures and their sources, for people.

use std::fmt::Write;

use super::{
    matrix::{By, Cell, MatrixReport},
    model::{Basis, Direction, EffectiveRtt, End, Estimated, State},
    pair::PairReport,
    units::{age, exact, percent, short},
};

/// The difference of two directions, as a share of the smaller one, above which texts mention it.
const ASYMMETRY_SHARE: f64 = 0.2;

impl Basis {
    /// Describes the source of a time, or the reason why there is no time.
    pub fn words(self) -> &'static str {
        match self {
            Self::Same => "the same node",
            Self::Measured => "measured",
            Self::Configured => "configured",
            Self::Estimated => "estimated",
            Self::Old => "measured, not recently",
            Self::Unreachable => "unreachable",
            Self::Nothing => "nothing known",
        }
    }
}

/// Formats a time with the mark of its source: `~12ms` is estimated, `=` configured, `?` not
/// recent, `x` unreachable, `-` unknown. The text is empty for a node and itself.
pub fn marked_figure(effective: EffectiveRtt) -> String {
    let mark = match effective.basis {
        Basis::Same => return String::new(),
        Basis::Unreachable => return "x".to_owned(),
        Basis::Nothing => return "-".to_owned(),
        Basis::Measured => "",
        Basis::Configured => "=",
        Basis::Estimated => "~",
        Basis::Old => "?",
    };
    match effective.rtt_micros {
        Some(micros) => format!("{mark}{}", short(micros)),
        None => "-".to_owned(),
    }
}

/// Describes a cell of a matrix in one line.
pub fn cell(report: &MatrixReport, row: usize, column: usize, cell: &Cell) -> String {
    let name = |i: usize| report.names.get(i).map_or("", String::as_str);
    let mut text = format!("{} to {}: ", name(row), name(column));
    let basis = cell.effective.basis;
    let figure = cell.effective.rtt_micros.filter(|_| basis != Basis::Same);
    // Writing to a String cannot fail, here and below.
    match figure {
        Some(micros) => _ = write!(text, "{} {}", short(micros), basis.words()),
        None => text += basis.words(),
    }
    if let Some((low, high)) = cell.p10_micros.zip(cell.p90_micros) {
        _ = write!(text, ", p10 {}, p90 {}", short(low), short(high));
    }
    match (report.by, cell.measured_pairs, cell.unreachable_pairs) {
        (By::Zone, measured, 0) => _ = write!(text, ", {measured} pairs measured"),
        (By::Zone, measured, lost) => {
            _ = write!(text, ", {measured} pairs measured, {lost} unreachable");
        }
        (By::Node, ..) => {}
    }
    text
}

/// Describes a node: its name, zone, identity and agent.
pub fn end(end: &End) -> String {
    let mut text = end.node.clone();
    if end.outside {
        return text + " (outside the cluster)";
    }
    let mut more = Vec::new();
    if let Some(zone) = &end.zone {
        more.push(format!("zone {zone}"));
    }
    if !end.uid.is_empty() {
        more.push(format!("UID {}", end.uid));
    }
    if let Some(boot) = &end.boot {
        more.push(format!("boot {boot}"));
    }
    let agent = if end.agent {
        "agent connected"
    } else {
        "no agent"
    };
    more.push(agent.to_owned());
    text += &format!(" ({})", more.join(", "));
    text
}

/// Describes the time that rules use, and its source.
pub fn figure_and_basis(effective: EffectiveRtt) -> String {
    let figure = effective.rtt_micros.map(exact).unwrap_or_default();
    match effective.basis {
        Basis::Same => "0, it is one node".to_owned(),
        Basis::Measured => format!("{figure}, measured"),
        Basis::Configured => format!("{figure}, configured"),
        Basis::Estimated => format!("{figure}, estimated"),
        Basis::Old => format!("{figure}, measured a while ago"),
        Basis::Unreachable => "unreachable".to_owned(),
        Basis::Nothing => "nothing is known".to_owned(),
    }
}

/// Explains why rules use the time of a pair.
pub fn why(report: &PairReport) -> String {
    let fresh: Vec<&Direction> = in_state(report, State::Measured);
    let connects = fresh.iter().filter(|d| d.by_connect).count();
    let is_outside = report.from.outside || report.to.outside;
    match report.effective.basis {
        Basis::Same => "a node is at no distance from itself".to_owned(),
        Basis::Configured => {
            "a configured table has a figure for these nodes or their zones, which takes \
             precedence over measurements"
                .to_owned()
        }
        Basis::Measured if is_outside => "TCP connects to the address are timed".to_owned(),
        Basis::Measured if connects == 0 => match (fresh.as_slice(), report.apart) {
            ([one, other], Some(apart)) if apart > ASYMMETRY_SHARE => {
                let other_is_larger = other.median_micros >= one.median_micros;
                let larger = if other_is_larger { other } else { one };
                format!(
                    "both directions are fresh and {} apart; the larger counts ({} to {})",
                    percent(apart),
                    larger.from,
                    larger.to,
                )
            }
            ([_, _], _) => {
                "both directions are measured and fresh; the larger median counts".to_owned()
            }
            ([one], _) => format!("{} to {} is measured and fresh", one.from, one.to),
            _ => "there is a fresh measurement".to_owned(),
        },
        Basis::Measured if connects == fresh.len() => {
            "UDP echoes are lost, so TCP connects are timed; open UDP".to_owned()
        }
        Basis::Measured => {
            "echoes of one direction are lost and TCP connects are timed there; the other direction's echoes count"
                .to_owned()
        }
        Basis::Unreachable => {
            let lost = in_state(report, State::Unreachable);
            let since = lost.iter().filter_map(|d| d.unreachable_micros).max();
            let time = since
                .map(|s| format!(" for {}", age(s)))
                .unwrap_or_default();
            let what = if is_outside {
                "TCP connects fail"
            } else {
                "echoes are lost"
            };
            format!("{what}{time}, three and more in a row; no rule accepts it")
        }
        Basis::Estimated => format!(
            "{}; costs use the prediction, evaluations use none and return Error",
            missing_reason(report)
        ),
        Basis::Old => format!(
            "{}, and nothing is predicted; costs use the last figure, evaluations return Error",
            missing_reason(report)
        ),
        Basis::Nothing => format!(
            "{}, nothing is predicted, and no table has the pair; name it in a rule, or configure a figure",
            missing_reason(report)
        ),
    }
}

fn missing_reason(report: &PairReport) -> String {
    let without: Vec<&str> = [&report.from, &report.to]
        .into_iter()
        .filter(|e| !e.agent && !e.outside)
        .map(|e| e.node.as_str())
        .collect();
    let stale = in_state(report, State::Stale);
    match (
        stale.iter().filter_map(|d| d.age_micros).min(),
        without.as_slice(),
    ) {
        (Some(last), _) => format!("the last sample is {} old, too old to count", age(last)),
        (None, [one]) => format!("not measured: {one} has no agent"),
        (None, [one, other]) => format!("not measured: {one} and {other} have no agent"),
        (None, _) => "the agents do not measure this pair".to_owned(),
    }
}

fn in_state(report: &PairReport, state: State) -> Vec<&Direction> {
    report
        .directions
        .iter()
        .filter(|d| d.state == state)
        .collect()
}

/// Describes the state of a direction.
pub fn state(d: &Direction) -> String {
    match (d.state, d.unreachable_micros) {
        (State::Measured, _) if d.by_connect => "fresh, by TCP connect".to_owned(),
        (State::Measured, _) => "fresh".to_owned(),
        (State::Unreachable, Some(since)) => format!("unreachable for {}", age(since)),
        (State::Unreachable, None) => "unreachable".to_owned(),
        (State::Stale, _) => "stale".to_owned(),
        (State::Nothing, _) => "not measured".to_owned(),
    }
}

/// Describes the larger median of both directions, and their difference.
pub fn both_directions(report: &PairReport) -> String {
    let mut text = report.combined_micros.map(exact).unwrap_or_default();
    if let Some(apart) = report.apart {
        text += &format!(", {} apart", percent(apart));
        if apart > ASYMMETRY_SHARE {
            text += " (asymmetric: check the routes and the load of the nodes)";
        }
    }
    text
}

/// Describes a prediction and the range of four in five real figures.
pub fn estimate(e: Estimated) -> String {
    let (low, high) = (exact(e.low_micros), exact(e.high_micros));
    format!(
        "{} ({low} to {high} in four of five cases)",
        exact(e.rtt_micros)
    )
}
