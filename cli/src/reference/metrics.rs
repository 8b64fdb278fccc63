//! Writes the page of metrics, from the registries of all processes.

use std::{collections::BTreeMap, fmt::Write};

use anyhow::{Context, Result};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tautline_gpu_agent::limits::mps;
use tautline_runtime::admin;

type Examples = fn(&mut Registry);

/// The processes with an admin port, by command.
const PROCESSES: [(&str, Examples); 10] = [
    ("extender", tautline_scheduler_extender::example_metrics),
    ("controller", tautline_controller::example_metrics),
    ("dispatch", crate::dispatch::example_metrics),
    ("admission", tautline_admission::example_metrics),
    ("provider latency", tautline_latency::example_metrics),
    ("provider gpu-slice", tautline_gpu_slice::example_metrics),
    ("provider scripted", tautline_sdk::example_metrics),
    ("agent latency", tautline_latency_agent::example_metrics),
    ("agent gpu", tautline_gpu_agent::example_metrics),
    ("agent mps", |registry| mps::Metrics::example("", registry)),
];

const INTRODUCTION: &str = "# Metrics

All metrics of `/metrics` on the admin port, by their names in Prometheus; a histogram has `_bucket`, `_sum`
and `_count`. A metric with labels appears with its first value. [Troubleshooting](../troubleshooting.md#metrics)
has the values of the labels, and alerts.

Where targets have a label `namespace`, `pod` or `container` (those of the chart's PodMonitor have), scrape with
`honor_labels: true`, as the PodMonitor does: some metrics have labels of these names.
";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Family {
    /// The name without the suffixes of the samples, as in OpenMetrics.
    name: String,
    kind: String,
    help: String,
    labels: Vec<String>,
}

pub(super) fn page() -> Result<String> {
    let mut processes = Vec::new();
    for (process, examples) in PROCESSES {
        let root = if process == "admission" {
            ""
        } else {
            "tautline"
        };
        processes.push((process, families(root, examples)?));
    }
    let ports = families("tautline", admin::example_metrics)?;
    Ok(render(&processes, &ports))
}

fn families(prefix: &str, examples: Examples) -> Result<Vec<Family>> {
    let mut registry = match prefix {
        "" => Registry::default(),
        prefix => Registry::with_prefix(prefix),
    };
    examples(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).context("metrics do not encode")?;
    Ok(parse(&text))
}

/// Reads the families of a text in OpenMetrics format, whose label values must have no comma.
fn parse(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            families.push(Family {
                name: name.to_owned(),
                help: help.trim_end_matches('.').replace('|', "\\|"),
                ..Family::default()
            });
        }
        let Some(family) = families.last_mut() else {
            continue;
        };
        if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            kind.clone_into(&mut family.kind);
        } else if let Some((labels, _)) = line.split_once('{').and_then(|(_, l)| l.split_once('}'))
        {
            family.add_labels(labels);
        }
    }
    families
}

impl Family {
    fn add_labels(&mut self, pairs: &str) {
        for label in pairs.split(',').filter_map(|pair| pair.split('=').next()) {
            if label != "le" && !self.labels.iter().any(|l| l == label) {
                self.labels.push(label.to_owned());
            }
        }
    }

    fn unit(&self) -> &'static str {
        let suffixes = [
            ("_timestamp_seconds", "seconds since 1970"),
            ("_seconds", "seconds"),
            ("_bytes", "bytes"),
            ("_milli", "thousandths"),
        ];
        let unit = suffixes.iter().find(|(s, _)| self.name.ends_with(s));
        unit.map_or("", |(_, unit)| unit)
    }

    fn row(&self) -> String {
        let total = if self.kind == "counter" { "_total" } else { "" };
        let labels: Vec<String> = self.labels.iter().map(|l| format!("`{l}`")).collect();
        let cells = [
            format!("`{}{total}`", self.name),
            self.kind.clone(),
            self.unit().to_owned(),
            labels.join(", "),
            self.help.clone(),
        ];
        let cells = cells.iter().map(|cell| match cell.as_str() {
            "" => " ".to_owned(),
            cell => format!(" {cell} "),
        });
        format!("|{}|", cells.collect::<Vec<_>>().join("|"))
    }
}

fn render(processes: &[(&str, Vec<Family>)], ports: &[Family]) -> String {
    let mut having: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (process, families) in processes {
        for family in families {
            having.entry(&family.name).or_default().push(process);
        }
    }
    let mut page = INTRODUCTION.to_owned();
    let mut section = |title: &str, families: &[&Family]| {
        if families.is_empty() {
            return;
        }
        _ = write!(page, "\n## {title}\n\n");
        _ = writeln!(page, "| metric | type | unit | labels | meaning |");
        _ = writeln!(page, "|---|---|---|---|---|");
        for family in families {
            _ = writeln!(page, "{}", family.row());
        }
    };
    section("All processes", &ports.iter().collect::<Vec<_>>());
    // The metrics, grouped by the processes that have them; the groups are in the order of their
    // first metric.
    let mut shared: Vec<(Vec<&str>, Vec<&Family>)> = Vec::new();
    for family in processes.iter().flat_map(|(_, families)| families) {
        let of = &having[family.name.as_str()];
        match shared.iter_mut().find(|(processes, _)| processes == of) {
            Some((_, families)) if families.iter().any(|f| f.name == family.name) => {}
            Some((_, families)) => families.push(family),
            None => shared.push((of.clone(), vec![family])),
        }
    }
    for (processes, mut families) in shared {
        families.sort_by(|a, b| a.name.cmp(&b.name));
        section(&title(&processes), &families);
    }
    page
}

fn title(processes: &[&str]) -> String {
    let names: Vec<String> = processes
        .iter()
        .map(|p| format!("`tautline {p}`"))
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;

    #[test]
    fn page_has_names_types_units_and_labels() {
        let page = page().unwrap();
        for row in [
            "| `tautline_extender_requests_total` | counter | | `verb`, `status` | Requests by verb and HTTP status |",
            "| `tautline_extender_request_seconds` | histogram | seconds | `verb` | Duration of requests by verb |",
            "| `tautline_extender_pods_in_flight` | gauge | | | ",
            "| `castslice_mutations_total` | counter | | | Pods changed |",
            "## `tautline extender`, `tautline controller`\n",
        ] {
            assert!(page.contains(row), "{row} is not in\n{page}");
        }
        let mut names = BTreeSet::new();
        for row in page.lines().filter(|l| l.starts_with("| `")) {
            let name = row.split('`').nth(1).unwrap();
            assert!(names.insert(name), "{name} is there twice");
        }
    }

    /// A family without an example has no row.
    #[test]
    fn page_has_every_metric_that_the_documents_name() {
        let page = page().unwrap();
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let mut named = 0;
        for file in std::fs::read_dir(docs).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|e| e != "md") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let rows = text.lines().filter(|l| l.starts_with("| `tautline_"));
            for row in rows {
                let cell = row.split('|').nth(1).unwrap();
                for name in cell.split('`').filter(|n| n.starts_with("tautline_")) {
                    let name = name.split('{').next().unwrap();
                    if name.ends_with('*') {
                        continue;
                    }
                    named += 1;
                    let found = [format!("`{name}`"), format!("`{name}_total`")];
                    assert!(
                        found.iter().any(|f| page.contains(f)),
                        "{}: {name} is not in docs/reference/metrics.md",
                        path.display()
                    );
                }
            }
        }
        assert!(named > 100, "{named}");
    }
}
