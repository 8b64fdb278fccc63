//! The reference of metrics, compared with what processes serve.

use std::collections::BTreeMap;

use crate::root;

struct Family {
    kind: String,
    labels: Vec<String>,
}

/// The metrics of a page that `docs/reference/metrics.md` does not have as they are, one a line.
/// Without the file, all.
pub fn undocumented(page: &str) -> Vec<String> {
    let path = root().join("docs/reference/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    compare(page, &documented(&text))
}

fn documented(reference: &str) -> BTreeMap<String, Family> {
    let rows = reference.lines().filter(|line| line.starts_with("| `"));
    let families = rows.filter_map(|row| {
        // name, type, unit, labels, meaning
        let cells: Vec<&str> = row
            .split('|')
            .map(|cell| cell.trim_matches([' ', '`']))
            .collect();
        let labels = cells.get(4)?.split(',');
        let family = Family {
            kind: cells[2].to_owned(),
            labels: labels
                .map(|l| l.trim_matches([' ', '`']).to_owned())
                .collect(),
        };
        Some((cells[1].trim_end_matches("_total").to_owned(), family))
    });
    families.collect()
}

fn compare(page: &str, documented: &BTreeMap<String, Family>) -> Vec<String> {
    let mut found = Vec::new();
    let mut family = None;
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            family = documented.get(name).filter(|f| f.kind == kind);
            if family.is_none() {
                found.push(line.to_owned());
            }
        } else if let (Some(family), Some((_, labels))) = (family, line.split_once('{')) {
            let unknown = |l: &&str| *l != "le" && !family.labels.iter().any(|known| known == l);
            if labels_of(labels).iter().any(unknown) {
                found.push(line.to_owned());
            }
        }
    }
    found
}

/// The names in `a="x",b="y"} 1`; values may have every character.
fn labels_of(mut text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        names.push(name.trim_start_matches(','));
        let mut escaped = false;
        let end = rest.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some(end) = end else { break };
        text = &rest[end + 1..];
        if text.starts_with('}') {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undocumented_metrics_types_and_labels_are_found() {
        let reference = "\
| metric | type | unit | labels | meaning |
|---|---|---|---|---|
| `tautline_a_total` | counter | | `x`, `y` | A |
| `tautline_h_seconds` | histogram | seconds | | H |
";
        let page = r#"# HELP tautline_a A.
# TYPE tautline_a counter
tautline_a_total{x="a\"b,z=\"",y="}"} 1
tautline_a_total{x="a",z="c"} 1
# TYPE tautline_h_seconds histogram
tautline_h_seconds_bucket{le="1"} 1
# TYPE tautline_g gauge
tautline_g{x="a"} 1
# TYPE tautline_h_seconds gauge
"#;
        let expected = [
            r#"tautline_a_total{x="a",z="c"} 1"#,
            "# TYPE tautline_g gauge",
            "# TYPE tautline_h_seconds gauge",
        ];
        assert_eq!(compare(page, &documented(reference)), expected);
    }
}
