//! Implements `tautline latency pair`, which shows the measurements between two nodes and the time
//! that rules use.

use std::process::ExitCode;

use anyhow::Result;
use tautline_latency::report::{
    Basis, Direction, PairReport,
    units::{age, exact},
    words,
};

use super::source::SourceArgs;
use crate::{
    EXIT_NO,
    output::{self, Output},
    table::{field, section},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The first node
    from: String,
    /// The second node
    to: String,
    #[command(flatten)]
    source: SourceArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let fields = [
        ("from", Some(args.from.as_str())),
        ("to", Some(args.to.as_str())),
    ];
    let Some(report) = args.source.get::<PairReport>("pair", &fields).await? else {
        return Ok(ExitCode::from(EXIT_NO));
    };
    output::print(args.output, &report, text)?;
    Ok(match report.effective.basis {
        Basis::Nothing => ExitCode::from(EXIT_NO),
        _ => ExitCode::SUCCESS,
    })
}

fn text(report: &PairReport) -> String {
    let mut out = field("From", &words::end(&report.from));
    out += &field("To", &words::end(&report.to));
    out += &field("Rules use", &words::figure_and_basis(report.effective));
    out += &field("Why", &words::why(report));
    if !report.directions.is_empty() {
        out += &section(
            "Measured",
            &report.directions,
            &[
                ("DIRECTION", &|d| format!("{} > {}", d.from, d.to)),
                ("STATE", &words::state),
                ("MEDIAN", &|d| figure(d.median_micros)),
                ("LAST VISITS", &windows),
                ("P50", &|d| figure(d.p50_micros)),
                ("P95", &|d| figure(d.p95_micros)),
                ("SAMPLES", &samples),
                ("AGE", &|d| d.age_micros.map(age).unwrap_or_default()),
                ("EVERY", &|d| figure(d.refresh_micros)),
            ],
        );
        out += &field("Both directions", &words::both_directions(report));
        out += &field(
            "Estimate",
            &report.estimate.map(words::estimate).unwrap_or_default(),
        );
        let configured = report.configured_micros.map(exact);
        out += &field("Configured", &configured.unwrap_or_default());
    }
    out += &section(
        "Named by",
        &report.named_by,
        &[
            ("RULE", &|by| by.rule.clone()),
            ("REQUEST", &|by| figure(by.request_micros)),
            ("LIMIT", &|by| figure(by.limit_micros)),
        ],
    );
    out
}

fn figure(micros: Option<u64>) -> String {
    micros.map(exact).unwrap_or_default()
}

fn windows(d: &Direction) -> String {
    let windows = d.window_micros.iter().map(|w| exact(*w));
    windows.collect::<Vec<_>>().join(" ")
}

fn samples(d: &Direction) -> String {
    match d.samples {
        0 => String::new(),
        samples => samples.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tautline_latency::report::{ActiveRule, EffectiveRtt, End, Estimated, State};

    use super::*;

    fn end_of(node: &str, agent: bool) -> End {
        End {
            node: node.to_owned(),
            zone: Some(node.split('-').next().unwrap_or(node).to_owned()),
            uid: "3f2a".to_owned(),
            boot: agent.then(|| "c0ffee".to_owned()),
            agent,
            outside: false,
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
        assert_eq!(words::state(&connect("a", "b")), "fresh, by TCP connect");
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
            let shown = words::why(&report);
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
