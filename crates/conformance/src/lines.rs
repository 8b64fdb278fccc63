//! Compares the lines of an answer with the nodes of its question. Does no I/O.

use std::collections::{BTreeMap, BTreeSet};

use tautline_proto::ruleprovider::NodeCost;

/// The maximum number of names in one message.
const MAX_SHOWN_NAMES: usize = 5;
const MAX_CODE_BYTES: usize = 40;

/// The nodes whose lines do not fit the question, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Completeness<'a> {
    pub missing: Vec<&'a str>,
    pub repeated: Vec<&'a str>,
    pub others: Vec<&'a str>,
}

impl<'a> Completeness<'a> {
    pub(crate) fn of(asked: &'a [String], lines: &'a [NodeCost]) -> Self {
        let asked: BTreeSet<&str> = asked.iter().map(String::as_str).collect();
        let mut answered = BTreeSet::new();
        let nodes = lines.iter().map(|line| line.node.as_str());
        let repeated: BTreeSet<&str> = nodes.filter(|node| !answered.insert(*node)).collect();
        Self {
            missing: asked.difference(&answered).copied().collect(),
            repeated: repeated.into_iter().collect(),
            others: answered.difference(&asked).copied().collect(),
        }
    }

    pub(crate) fn faults(&self) -> Option<String> {
        let faults = [
            ("no line for", &self.missing),
            ("several lines for", &self.repeated),
            ("a line for a node that is not eligible:", &self.others),
        ];
        let faults = faults.iter().filter(|(_, nodes)| !nodes.is_empty());
        let faults = faults.map(|(what, nodes)| format!("{what} {}", names(nodes)));
        faults.reduce(|all, fault| format!("{all}; {fault}"))
    }
}

/// Joins names to a text such as `a, b and 3 more`.
pub(crate) fn names<S: AsRef<str>>(all: &[S]) -> String {
    let shown = all.iter().take(MAX_SHOWN_NAMES).map(AsRef::as_ref);
    let shown = shown.collect::<Vec<&str>>().join(", ");
    match all.len().saturating_sub(MAX_SHOWN_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns whether a text is a reason code: a capital letter, then letters, 40 at most in all.
pub(crate) fn is_code(code: &str) -> bool {
    code.len() <= MAX_CODE_BYTES
        && code.starts_with(|c: char| c.is_ascii_uppercase())
        && code.bytes().all(|b| b.is_ascii_alphabetic())
}

/// Returns the fault in a line's numbers; `None` if they are valid.
pub(crate) fn number_fault(line: &NodeCost) -> Option<String> {
    let (node, cost, tie_break) = (&line.node, line.cost, line.tie_break);
    // All known providers refuse a node without a code by -1; a lower number is a wrong cost.
    if cost < -1 && line.reason.is_empty() {
        return Some(format!(
            "{node}: cost {cost} without a reason; a usable node has a cost of 0 or more, a \
             refused one a reason"
        ));
    }
    (cost >= 0 && !(0..=cost).contains(&tie_break)).then(|| {
        format!("{node}: tieBreak {tie_break} of cost {cost}; it is a part of the cost, 0 to all")
    })
}

/// Describes the first node of `earlier` whose line differs in `later`.
pub(crate) fn difference(earlier: &[NodeCost], later: &[NodeCost]) -> Option<String> {
    fn by_node(lines: &[NodeCost]) -> BTreeMap<&str, String> {
        lines
            .iter()
            .map(|line| (line.node.as_str(), describe(line)))
            .collect()
    }
    let later = by_node(later);
    by_node(earlier).into_iter().find_map(|(node, before)| {
        let after = later.get(node).map_or("no line", String::as_str);
        (before != after).then(|| format!("{node}: {before}, then {after}"))
    })
}

/// Describes a line without its detail, which may have newer figures.
pub(crate) fn describe(line: &NodeCost) -> String {
    let mut text = format!("cost {}", line.cost);
    if !line.reason.is_empty() {
        text += &format!(" {}", line.reason);
    }
    if line.freeable {
        text += " freeable";
    }
    if line.tie_break != 0 {
        text += &format!(" tieBreak {}", line.tie_break);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(node: &str, cost: i64, reason: &str) -> NodeCost {
        NodeCost {
            node: node.into(),
            cost,
            reason: reason.into(),
            ..NodeCost::default()
        }
    }

    #[test]
    fn completeness_names_each_fault() {
        let asked = ["a", "b", "c"].map(str::to_owned);
        let lines = ["a", "a", "x", "c"].map(|node| line(node, 1, ""));
        let faults = Completeness::of(&asked, &lines).faults().unwrap();
        assert_eq!(
            faults,
            "no line for b; several lines for a; a line for a node that is not eligible: x"
        );
        let all = ["c", "b", "a"].map(|node| line(node, 1, ""));
        assert_eq!(Completeness::of(&asked, &all).faults(), None);
    }

    #[test]
    fn codes_are_letters() {
        for good in ["OverLimit", "A", &"A".repeat(40)] {
            assert!(is_code(good), "{good}");
        }
        for bad in [
            "",
            "overLimit",
            "Over limit",
            "Over20",
            "É",
            &"A".repeat(41),
        ] {
            assert!(!is_code(bad), "{bad}");
        }
    }

    #[test]
    fn numbers_have_their_ranges() {
        for good in [line("a", 0, ""), line("a", -1, ""), line("a", -9, "Far")] {
            assert_eq!(number_fault(&good), None);
        }
        for bad in [line("a", -2, ""), line("a", i64::MIN, "")] {
            assert!(number_fault(&bad).unwrap().contains("without a reason"));
        }
        for (cost, tie_break, fits) in [(5, 5, true), (5, 6, false), (5, -1, false)] {
            let line = NodeCost {
                tie_break,
                ..line("a", cost, "")
            };
            assert_eq!(number_fault(&line).is_none(), fits, "{cost} {tie_break}");
        }
    }
}
