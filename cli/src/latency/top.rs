//! Implements `tautline latency top`, which lists the pairs of nodes of active latency rules, the
//! worst first.

use std::process::ExitCode;

use anyhow::Result;
use tautline_latency::report::{
    Basis, TopPair, TopReport,
    units::{age, percent, short},
    words::marked_figure,
};

use super::source::SourceArgs;
use crate::{
    output::{self, Output},
    table::{cut, table},
};

/// The maximum width of a name; longer names are cut.
const MAX_NAME_COLUMNS: usize = 40;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of pairs
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[command(flatten)]
    source: SourceArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let limit = args.limit.to_string();
    let fields = [("limit", Some(limit.as_str()))];
    let Some(report) = args.source.get::<TopReport>("top", &fields).await? else {
        return Ok(ExitCode::from(crate::EXIT_NO));
    };
    if report.pairs.is_empty() {
        note!(
            "no active rule of latency names a pair of nodes; bindings are evaluated every period of their offer"
        );
    }
    output::print(args.output, &report, text)?;
    Ok(ExitCode::SUCCESS)
}

fn text(report: &TopReport) -> String {
    if report.pairs.is_empty() {
        return String::new();
    }
    let figure = |micros: Option<u64>| micros.map(short).unwrap_or_default();
    let part = |part: Option<f64>| part.map(percent).unwrap_or_default();
    let mut out = table(
        &report.pairs,
        &[
            ("FROM", &|pair| cut(&pair.from, MAX_NAME_COLUMNS)),
            ("TO", &|pair| cut(&pair.to, MAX_NAME_COLUMNS)),
            ("RULE", &|pair| pair.rule.clone()),
            ("RTT", &rtt),
            ("REQUEST", &|pair| figure(pair.request_micros)),
            ("LIMIT", &|pair| figure(pair.limit_micros)),
            ("SHARE", &|pair| part(pair.limit_share)),
            ("COMPLIANCE", &|pair| pair.compliance.clone()),
            ("APART", &|pair| part(pair.apart)),
            ("AGE", &|pair| pair.age_micros.map(age).unwrap_or_default()),
        ],
    );
    let guesses = report
        .pairs
        .iter()
        .any(|p| p.effective.basis == Basis::Estimated);
    if guesses {
        out += "~ estimated: evaluations use no estimate\n";
    }
    if report.named > report.pairs.len() {
        out += &format!("the worst {} of {}\n", report.pairs.len(), report.named);
    }
    out
}

fn rtt(pair: &TopPair) -> String {
    match pair.effective.basis {
        Basis::Unreachable => "unreachable".to_owned(),
        Basis::Same => "0".to_owned(),
        _ => marked_figure(pair.effective),
    }
}

#[cfg(test)]
mod tests {
    use tautline_latency::report::EffectiveRtt;

    use super::*;

    fn pair(from: &str, basis: Basis, micros: Option<u64>, compliance: &str) -> TopPair {
        TopPair {
            from: from.to_owned(),
            to: "north-1".to_owned(),
            rule: "latency".to_owned(),
            request_micros: Some(5_000),
            limit_micros: Some(20_000),
            effective: EffectiveRtt {
                basis,
                rtt_micros: micros,
            },
            limit_share: micros.map(|m| m as f64 / 20_000.0),
            compliance: compliance.to_owned(),
            ..TopPair::default()
        }
    }

    #[test]
    fn top_lists_the_worst_pairs() {
        let report = TopReport {
            pairs: vec![
                pair("south-2", Basis::Unreachable, None, "Violation"),
                TopPair {
                    apart: Some(0.31),
                    age_micros: Some(1_400_000),
                    ..pair("south-1", Basis::Measured, Some(31_000), "Violation")
                },
                pair("edge-1", Basis::Estimated, Some(13_000), "Error"),
                TopPair {
                    request_micros: None,
                    limit_micros: None,
                    limit_share: None,
                    ..pair(
                        &"long".repeat(60),
                        Basis::Configured,
                        Some(180),
                        "Compliant",
                    )
                },
            ],
            named: 120,
        };
        insta::assert_snapshot!("top", text(&report));
        assert_eq!(text(&TopReport::default()), "");
    }
}
