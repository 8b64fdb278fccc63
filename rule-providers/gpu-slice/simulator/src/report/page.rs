//! A self-contained page: tables and inline charts.

use std::fmt::Write as _;

use tautline_report::escaped;

use super::{PublishedCurves, WorkloadReport, chart};
use crate::batch::RunResult;

const STYLE: &str = "\
    :root{color-scheme:light dark;--ink:#1f2328;--soft:#59636e;--rule:#d8dee4;--paper:#fff}\
    @media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--rule:#30363d;--paper:#0d1117}}\
    body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;padding:0 1rem}\
    h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.5rem}p{color:var(--soft);max-width:44rem}\
    table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:1rem 0}\
    th,td{padding:.25rem .9rem .25rem 0;text-align:right;border-bottom:1px solid var(--rule)}\
    th{color:var(--soft);font-weight:500}th:first-child,td:first-child{text-align:left}\
    .wide{overflow-x:auto}svg{width:100%;height:auto}summary{cursor:pointer;color:var(--soft)}";

pub(super) fn page(
    parts: &[WorkloadReport<'_>],
    published: &PublishedCurves,
    notes: &[String],
) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>GPU placement</title><style>{STYLE}</style></head><body>\n\
         <h1>How full each policy gets the cluster</h1>\n\
         <p>Pods arrive one at a time and never leave; one that fits nowhere is dropped. \
         Allocation is used GPU in percent of all GPU, when the arrived pods have asked for \
         100 % and 130 % of it. Fragmentation is GPU that is idle and of no use to the \
         expected next pod. The experiment is that of Weng et al., USENIX ATC 2023.</p>\n"
    );
    for note in notes {
        _ = writeln!(out, "<p>{}</p>", escaped(note));
    }
    out.push_str("<h2>Means over seeds</h2>\n");
    means(&mut out, parts);
    for part in parts {
        _ = writeln!(
            out,
            "<h2>{}</h2>\n{}<details><summary>{} runs</summary>",
            escaped(part.workload),
            chart::draw(part),
            part.outcomes.len()
        );
        runs(&mut out, part, published);
        out.push_str("</details>\n");
    }
    out.push_str("</body></html>\n");
    out
}

/// A row of a table: the columns' names and values.
type Row = Vec<(&'static str, String)>;

fn means(out: &mut String, parts: &[WorkloadReport<'_>]) {
    let mut rows: Vec<Row> = Vec::new();
    for part in parts {
        for line in &part.lines {
            let their = |c: usize| line.published.as_ref().and_then(|curve| curve[c]);
            rows.push(vec![
                ("workload", part.workload.to_owned()),
                ("policy", line.policy.to_string()),
                ("seeds", part.seeds.len().to_string()),
                ("at 100 %", percent(line.curve[100])),
                ("published", percent(their(100))),
                ("at 130 %", percent(line.curve[130])),
                ("published", percent(their(130))),
            ]);
        }
    }
    table(out, &rows);
}

fn runs(out: &mut String, part: &WorkloadReport<'_>, published: &PublishedCurves) {
    let row = |o: &RunResult| {
        let f = &o.figures;
        let theirs = published.curve(&f.workload, o.policy, f.seed);
        let mut row: Row = vec![
            ("policy", f.policy.to_owned()),
            ("seed", f.seed.to_string()),
            ("at 100 %", percent(f.allocation_at_100)),
            ("published", percent(theirs.and_then(|c| c[100]))),
            ("at 130 %", percent(f.allocation_at_130)),
            ("fragmented", percent(f.fragmentation_at_100)),
            ("dropped", f.dropped.to_string()),
            ("seconds", format!("{:.2}", f.seconds)),
        ];
        // All runs have figures of churn, or none.
        if let Some(churn) = f.churn {
            row.extend([
                ("offered", percent(Some(churn.churn_offered))),
                ("kept allocated", percent(Some(churn.churn_allocation))),
                ("placed", percent(Some(churn.churn_placed))),
            ]);
        }
        row
    };
    table(out, &part.outcomes.iter().map(row).collect::<Vec<_>>());
}

fn table(out: &mut String, rows: &[Row]) {
    out.push_str("<div class=\"wide\"><table><thead><tr>");
    for (name, _) in rows.iter().take(1).flatten() {
        _ = write!(out, "<th>{name}</th>");
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (_, value) in row {
            _ = write!(out, "<td>{}</td>", escaped(value));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |v| format!("{v:.2}"))
}
