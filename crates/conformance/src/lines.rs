//! The lines of an answer against the nodes of its question. Pure.

use std::collections::{BTreeMap, BTreeSet};

use tautline_proto::ruleprovider::NodeCost;

/// Names in one message.
const SHOWN: usize = 5;
const LONGEST_CODE: usize = 40;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Completeness {
    pub missing: Vec<String>,
    pub repeated: Vec<String>,
    pub others: Vec<String>,
}

impl Completeness {
    pub(crate) fn of(asked: &[String], lines: &[NodeCost]) -> Self {
        let mut counts = BTreeMap::<&str, usize>::new();
        for line in lines {
            *counts.entry(&line.node).or_default() += 1;
        }
        let known: BTreeSet<&str> = asked.iter().map(String::as_str).collect();
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let lacks = |node: &&str| !counts.contains_key(node);
        let twice = counts
            .iter()
            .filter(|(_, n)| **n > 1)
            .map(|(node, _)| *node);
        let others = counts.keys().copied().filter(|node| !known.contains(node));
        Self {
            missing: owned(known.iter().copied().filter(lacks).collect()),
            repeated: owned(twice.collect()),
            others: owned(others.collect()),
        }
    }

    /// Everything that is wrong, in words.
    pub(crate) fn faults(&self) -> Option<String> {
        let faults = [
            ("no line for", &self.missing),
            ("several lines for", &self.repeated),
            ("a line for a node that is not eligible:", &self.others),
        ];
        let faults = faults.into_iter().filter(|(_, nodes)| !nodes.is_empty());
        let faults: Vec<String> = faults
            .map(|(what, nodes)| format!("{what} {}", names(nodes)))
            .collect();
        (!faults.is_empty()).then(|| faults.join("; "))
    }
}

/// `a, b and 3 more`.
pub(crate) fn names<S: AsRef<str>>(all: &[S]) -> String {
    let shown: Vec<&str> = all.iter().take(SHOWN).map(AsRef::as_ref).collect();
    let shown = shown.join(", ");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A capital letter, then letters; 40 at most.
pub(crate) fn is_code(code: &str) -> bool {
    code.len() <= LONGEST_CODE
        && code.starts_with(|c: char| c.is_ascii_uppercase())
        && code.bytes().all(|b| b.is_ascii_alphabetic())
}

/// The fault of a line's numbers.
pub(crate) fn number_fault(line: &NodeCost) -> Option<String> {
    let NodeCost {
        node,
        cost,
        tie_break,
        ..
    } = line;
    // A refusal without a code is -1 in all providers known; other numbers are costs.
    if *cost < -1 && line.reason.is_empty() {
        return Some(format!(
            "{node}: cost {cost} without a reason; a usable node has a cost of 0 or more, a \
             refused one a reason"
        ));
    }
    (*cost >= 0 && !(0..=*cost).contains(tie_break)).then(|| {
        format!("{node}: tieBreak {tie_break} of cost {cost}; it is a part of the cost, 0 to all")
    })
}

/// The first node of `earlier` with another line in `later`.
pub(crate) fn difference(earlier: &[NodeCost], later: &[NodeCost]) -> Option<String> {
    let by_node = |lines: &[NodeCost]| -> BTreeMap<String, String> {
        let line = |line: &NodeCost| (line.node.clone(), describe(line));
        lines.iter().map(line).collect()
    };
    let (earlier, later) = (by_node(earlier), by_node(later));
    let differs = |(node, line): (&String, &String)| match later.get(node) {
        Some(other) if other == line => None,
        Some(other) => Some(format!("{node}: {line}, then {other}")),
        None => Some(format!("{node}: {line}, then no line")),
    };
    earlier.iter().find_map(differs)
}

/// Without the detail: its figures may be newer.
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
