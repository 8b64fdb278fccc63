use tautline_latency::report::{
    ActiveRule, Basis, Direction, EffectiveRtt, End, Estimated, PairReport, State,
};

use crate::{
    latency::units::{age, exact, percent},
    table::{field, section},
};

/// Directions that differ by more get a note.
const ASYMMETRY: f64 = 0.2;

pub(super) fn text(report: &PairReport) -> String {
    let mut out = field("From", &end(&report.from));
    out += &field("To", &end(&report.to));
    out += &field("Rules use", &figure_and_basis(report.effective));
    out += &field("Why", &why(report));
    if !report.directions.is_empty() {
        let header = [
            "DIRECTION",
            "STATE",
            "MEDIAN",
            "LAST VISITS",
            "P50",
            "P95",
            "SAMPLES",
            "AGE",
            "EVERY",
        ];
        let rows = report.directions.iter().map(direction).collect();
        out += &section("Measured", &header, rows);
        out += &field("Both directions", &both_directions(report));
        out += &field(
            "Estimate",
            &report.estimate.map(estimate).unwrap_or_default(),
        );
        let configured = report.configured_micros.map(exact);
        out += &field("Configured", &configured.unwrap_or_default());
    }
    let header = ["RULE", "REQUEST", "LIMIT"];
    out += &section(
        "Named by",
        &header,
        report.named_by.iter().map(rule_row).collect(),
    );
    out
}

fn end(end: &End) -> String {
    let mut text = end.node.clone();
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
    more.push(
        if end.agent {
            "agent connected"
        } else {
            "no agent"
        }
        .to_owned(),
    );
    text += &format!(" ({})", more.join(", "));
    text
}

fn figure_and_basis(effective: EffectiveRtt) -> String {
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

fn why(report: &PairReport) -> String {
    let fresh: Vec<&Direction> = in_state(report, State::Measured);
    let of_echoes = fresh.iter().filter(|d| !d.by_connect);
    let connects = fresh.len() - of_echoes.count();
    match report.effective.basis {
        Basis::Same => "a node is at no distance from itself".to_owned(),
        Basis::Configured => {
            "a configured table has a figure for these nodes or their zones, which takes \
             precedence over measurements"
                .to_owned()
        }
        Basis::Measured if connects > 0 => match connects == fresh.len() {
            true => "UDP echoes are lost, so TCP connects are timed; open UDP",
            false => {
                "echoes of one direction are lost and TCP connects are timed there; the other direction's echoes count"
            }
        }
        .to_owned(),
        Basis::Measured => match fresh.as_slice() {
            [one, other] if report.apart.is_some_and(|a| a > ASYMMETRY) => format!(
                "both directions are fresh and {} apart; the larger counts ({} to {})",
                report.apart.map(percent).unwrap_or_default(),
                [one, other]
                    .iter()
                    .max_by_key(|d| d.median_micros)
                    .map_or("", |d| &d.from),
                [one, other]
                    .iter()
                    .max_by_key(|d| d.median_micros)
                    .map_or("", |d| &d.to),
            ),
            [_, _] => "both directions are measured and fresh; the larger median counts".to_owned(),
            [one] => format!("{} to {} is measured and fresh", one.from, one.to),
            _ => "there is a fresh measurement".to_owned(),
        },
        Basis::Unreachable => {
            let lost = in_state(report, State::Unreachable);
            let since = lost.iter().filter_map(|d| d.unreachable_micros).max();
            let since = since
                .map(|s| format!(" for {}", age(s)))
                .unwrap_or_default();
            format!("echoes are lost{since}, three and more in a row; no rule accepts it")
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
        .filter(|e| !e.agent)
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

fn direction(d: &Direction) -> Vec<String> {
    let state = match (d.state, d.unreachable_micros) {
        (State::Measured, _) if d.by_connect => "fresh, by TCP connect".to_owned(),
        (State::Measured, _) => "fresh".to_owned(),
        (State::Unreachable, Some(since)) => format!("unreachable for {}", age(since)),
        (State::Unreachable, None) => "unreachable".to_owned(),
        (State::Stale, _) => "stale".to_owned(),
        (State::Nothing, _) => "not measured".to_owned(),
    };
    let figure = |micros: Option<u64>| micros.map(exact).unwrap_or_default();
    let windows = d.window_micros.iter().map(|w| exact(*w));
    let samples = if d.samples > 0 {
        d.samples.to_string()
    } else {
        String::new()
    };
    vec![
        format!("{} > {}", d.from, d.to),
        state,
        figure(d.median_micros),
        windows.collect::<Vec<_>>().join(" "),
        figure(d.p50_micros),
        figure(d.p95_micros),
        samples,
        d.age_micros.map(age).unwrap_or_default(),
        figure(d.refresh_micros),
    ]
}

fn both_directions(report: &PairReport) -> String {
    let mut text = report.combined_micros.map(exact).unwrap_or_default();
    if let Some(apart) = report.apart {
        text += &format!(", {} apart", percent(apart));
        if apart > ASYMMETRY {
            text += " (asymmetric: check the routes and the load of the nodes)";
        }
    }
    text
}

/// The figure, and the range of four in five real figures.
fn estimate(e: Estimated) -> String {
    let (low, high) = (exact(e.low_micros), exact(e.high_micros));
    format!(
        "{} ({low} to {high} in four of five cases)",
        exact(e.rtt_micros)
    )
}

fn rule_row(by: &ActiveRule) -> Vec<String> {
    let figure = |micros: Option<u64>| micros.map(exact).unwrap_or_default();
    vec![
        by.rule.clone(),
        figure(by.request_micros),
        figure(by.limit_micros),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(node: &str, agent: bool) -> End {
        End {
            node: node.to_owned(),
            zone: Some(node.split('-').next().unwrap_or(node).to_owned()),
            uid: "3f2a".to_owned(),
            boot: agent.then(|| "c0ffee".to_owned()),
            agent,
        }
    }

    fn one_way(from: &str, to: &str, median: u64) -> Direction {
        Direction {
            from: from.to_owned(),
            to: to.to_owned(),
            state: State::Measured,
            median_micros: Some(median),
            window_micros: vec![median, median + 100, median - 90],
            p50_micros: Some(median),
            p95_micros: Some(median * 2),
            samples: 60,
            age_micros: Some(1_200_000),
            refresh_micros: Some(2_000_000),
            unreachable_micros: None,
            by_connect: false,
        }
    }

    fn unknown(from: &str, to: &str) -> Direction {
        Direction {
            from: from.to_owned(),
            to: to.to_owned(),
            ..Direction::default()
        }
    }

    fn pair(basis: Basis, micros: u64, directions: [Direction; 2]) -> PairReport {
        PairReport {
            from: end_of("a", true),
            to: end_of("b", true),
            effective: EffectiveRtt::new(basis, micros),
            directions: directions.into(),
            ..PairReport::default()
        }
    }

    #[test]
    fn text_of_a_measured_pair() {
        let report = PairReport {
            from: end_of("south-1", true),
            to: end_of("north-1", true),
            combined_micros: Some(15_000),
            apart: Some(0.25),
            estimate: Some(Estimated {
                rtt_micros: 13_000,
                low_micros: 11_700,
                high_micros: 15_600,
            }),
            named_by: vec![ActiveRule {
                rule: "latency".to_owned(),
                request_micros: Some(5_000),
                limit_micros: Some(20_000),
            }],
            ..pair(
                Basis::Measured,
                15_000,
                [
                    one_way("south-1", "north-1", 12_000),
                    one_way("north-1", "south-1", 15_000),
                ],
            )
        };
        insta::assert_snapshot!("pair_measured", text(&report));
    }

    #[test]
    fn text_of_an_unknown_pair() {
        let report = PairReport {
            to: end_of("b", false),
            effective: EffectiveRtt::default(),
            ..pair(Basis::Nothing, 0, [unknown("a", "b"), unknown("b", "a")])
        };
        insta::assert_snapshot!("pair_unknown", text(&report));
    }

    #[test]
    fn every_basis_has_a_reason() {
        let fresh = || one_way("a", "b", 12_000);
        let stale = Direction {
            state: State::Stale,
            age_micros: Some(90_000_000),
            ..unknown("a", "b")
        };
        let lost = Direction {
            state: State::Unreachable,
            unreachable_micros: Some(125_000_000),
            ..unknown("a", "b")
        };
        let back = || unknown("b", "a");
        let connect = |from, to| Direction {
            by_connect: true,
            ..one_way(from, to, 12_000)
        };
        assert_eq!(direction(&connect("a", "b"))[1], "fresh, by TCP connect");
        for (report, expected) in [
            (
                pair(Basis::Measured, 1, [fresh(), back()]),
                "a to b is measured and fresh",
            ),
            (
                pair(Basis::Measured, 1, [fresh(), one_way("b", "a", 12_100)]),
                "both directions are measured and fresh; the larger median counts",
            ),
            (
                pair(Basis::Measured, 1, [connect("a", "b"), back()]),
                "so TCP connects are timed",
            ),
            (
                pair(
                    Basis::Measured,
                    1,
                    [connect("a", "b"), one_way("b", "a", 12_100)],
                ),
                "the other direction's echoes count",
            ),
            (
                pair(Basis::Unreachable, 1, [lost, back()]),
                "echoes are lost for 2m, three and more in a row",
            ),
            (
                pair(Basis::Estimated, 1, [stale.clone(), back()]),
                "the last sample is 1m old, too old to count; costs use the prediction, \
                 evaluations use none and return Error",
            ),
            (
                pair(Basis::Old, 1, [stale, back()]),
                "costs use the last figure",
            ),
            (
                pair(Basis::Configured, 1, [fresh(), back()]),
                "takes precedence over measurements",
            ),
            (
                pair(Basis::Estimated, 1, [unknown("a", "b"), back()]),
                "the agents do not measure this pair",
            ),
        ] {
            let shown = why(&report);
            assert!(shown.contains(expected), "{shown}");
        }
    }

    #[test]
    fn node_has_no_distance_to_itself() {
        let report = PairReport {
            from: end_of("a", true),
            to: end_of("a", true),
            effective: EffectiveRtt::new(Basis::Same, 0),
            ..PairReport::default()
        };
        let shown = text(&report);
        assert!(shown.contains("0, it is one node"), "{shown}");
        assert!(!shown.contains("DIRECTION"), "{shown}");
    }
}
