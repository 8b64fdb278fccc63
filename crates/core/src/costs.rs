//! One provider's costs of many nodes, in a table whose parts several copies share.

mod lines;

use std::sync::Arc;

use crate::nodes::NodeSet;
use lines::{Lines, NO_COST};

/// The number of lines in a part: a change copies the part if other tables share it.
const LINES_PER_PART: usize = 64;

/// One provider's costs of the nodes of a request, or of all nodes. A copy shares the lines.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    parts: Vec<Arc<Lines>>,
    /// The line of each node of the request; `None` if the lines have the nodes' positions.
    at: Option<Arc<[u32]>>,
    len: usize,
    /// The number of nodes in the answer that the request does not name; they are ignored.
    pub unknown_nodes: usize,
    /// The number of repeated lines for a node; the worst line counts.
    pub duplicate_nodes: usize,
    /// The greatest difference between equally good costs; if below 1, every difference counts.
    pub resolution: i64,
    /// The cost, without tie-break, up to which a node is within the rule's request; `None` if the
    /// provider does not report it.
    pub request_cost: Option<i64>,
    /// True if any line has had a tie-break.
    tie_breaks: bool,
    /// The position of the next line's node, if the answer keeps the request's order.
    next: usize,
}

/// The parts of a provider's line other than node and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CostDetail<'a> {
    /// A short stable reason code; empty if the line has no valid one.
    pub code: &'a str,
    /// A text for people, which may contain figures.
    pub detail: &'a str,
    /// True if removing pods from the node could make it usable.
    pub freeable: bool,
    /// The part of the cost that only orders equally good nodes, from 0 to the cost.
    pub tie_break: i64,
}

impl Costs {
    /// Creates a table of `nodes` nodes without costs.
    pub fn new(nodes: usize) -> Self {
        Self {
            len: nodes,
            ..Self::default()
        }
    }

    /// Adds a line of a provider's answer; if a node has several lines, the worst counts.
    pub fn add(&mut self, nodes: &NodeSet, node: &str, cost: i64, detail: CostDetail<'_>) {
        let at = nodes.position_from(self.next, node);
        let Some(at) = at.filter(|at| *at < self.len) else {
            self.unknown_nodes += 1;
            return;
        };
        self.next = at + 1;
        if let Some(old) = self.get(at) {
            self.duplicate_nodes += 1;
            let detail = lines::sanitized(detail, cost);
            let before = self.detail(at).unwrap_or_default();
            let worse = match (old < 0, cost < 0) {
                (false, false) => (cost, before.tie_break) > (old, detail.tie_break),
                (true, true) => (cost, detail) < (old, before),
                (_, new_is_negative) => new_is_negative,
            };
            if !worse {
                return;
            }
        }
        self.put(at, cost, detail);
    }

    /// Sets the line at a position of a table of all nodes.
    pub fn put(&mut self, at: usize, cost: i64, detail: CostDetail<'_>) {
        self.len = self.len.max(at + 1);
        if self.parts.len() <= at / LINES_PER_PART {
            self.parts
                .resize_with(at / LINES_PER_PART + 1, Arc::default);
        }
        self.tie_breaks |= detail.tie_break != 0;
        Arc::make_mut(&mut self.parts[at / LINES_PER_PART]).put(at % LINES_PER_PART, cost, detail);
    }

    /// Removes the line at a position of a table of all nodes.
    pub fn remove(&mut self, at: usize) {
        if let Some(part) = self.parts.get_mut(at / LINES_PER_PART) {
            Arc::make_mut(part).remove(at % LINES_PER_PART);
        }
    }

    /// Returns the lines at these positions of a table of all nodes, in this order.
    pub fn of(&self, at: Arc<[u32]>) -> Self {
        Self {
            len: at.len(),
            at: Some(at),
            ..self.clone()
        }
    }

    /// Returns the part with the line of a position, and the line's position in that part.
    fn line(&self, at: usize) -> Option<(&Lines, usize)> {
        let at = match &self.at {
            Some(positions) => *positions.get(at)? as usize,
            None => at,
        };
        Some((self.parts.get(at / LINES_PER_PART)?, at % LINES_PER_PART))
    }

    /// Returns the cost at a position; `None` if the answer does not name the node.
    pub fn get(&self, at: usize) -> Option<i64> {
        self.line(at).and_then(|(lines, at)| lines.get(at))
    }

    /// Returns the other parts of the line at a position; `None` if all are empty.
    pub fn detail(&self, at: usize) -> Option<CostDetail<'_>> {
        self.line(at).and_then(|(lines, at)| lines.detail(at))
    }

    /// Returns the approximate size in bytes; each copy counts an equal share of a shared part.
    pub fn heap_bytes(&self) -> usize {
        let parts = self.parts.iter();
        let lines = parts.map(|part| part.heap_bytes() / Arc::strong_count(part));
        self.parts.len() * 16 + self.at.as_ref().map_or(0, |at| at.len() * 4) + lines.sum::<usize>()
    }

    /// Returns the costs by position; a position without a line has a negative cost.
    pub(crate) fn values(&self) -> Vec<i64> {
        let value = |at| self.get(at).unwrap_or(NO_COST);
        (0..self.len).map(value).collect()
    }

    /// Returns the tie-breaks by position; empty if all are 0.
    pub(crate) fn tie_breaks(&self) -> Vec<i64> {
        if !self.tie_breaks {
            return Vec::new();
        }
        let tie_break = |at| {
            let line = self.line(at);
            line.map_or(0, |(lines, at)| lines.tie_break(at))
        };
        let all: Vec<i64> = (0..self.len).map(tie_break).collect();
        if all.iter().any(|tie| *tie != 0) {
            all
        } else {
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Cost, code, detail, freeable and tie-break.
    type Line = (Option<i64>, String, String, bool, i64);

    fn line(costs: &Costs, at: usize) -> Line {
        let note = costs.detail(at).unwrap_or_default();
        let (code, detail) = (note.code.to_owned(), note.detail.to_owned());
        (costs.get(at), code, detail, note.freeable, note.tie_break)
    }

    const NODES: usize = 3 * LINES_PER_PART;

    proptest! {
        /// The last line of a node counts, an earlier copy stays as it was, and memory is bounded by
        /// the texts in use.
        #[test]
        fn copies_keep_their_lines(
            lines in prop::collection::vec((0..NODES, -2..9_i64, "(Full|Busy)?", "[a-z]{0,9}", any::<bool>(), -2..12_i64), 0..400),
            at in prop::collection::vec(0..NODES as u32, 0..12),
        ) {
            let mut costs = Costs::default();
            let none = (None, String::new(), String::new(), false, 0);
            let mut last: Vec<Line> = vec![none.clone(); NODES];
            let at: Arc<[u32]> = at.into();
            (costs.resolution, costs.request_cost) = (7, Some(0));
            let mut copies = Vec::new();
            for (i, cost, code, detail, freeable, tie_break) in lines {
                let note = CostDetail { code: &code, detail: &detail, freeable, tie_break };
                match cost {
                    -2 => {
                        costs.remove(i);
                        last[i] = none.clone();
                    }
                    _ => {
                        costs.put(i, cost, note);
                        last[i] = (Some(cost), code, detail, freeable, tie_break.min(cost).max(0));
                    }
                }
                if i % 50 == 0 {
                    copies.push((costs.of(Arc::clone(&at)), last.clone()));
                }
            }
            copies.push((costs.of(Arc::clone(&at)), last.clone()));
            for (copy, last) in &copies {
                prop_assert_eq!((copy.resolution, copy.request_cost, copy.len), (7, Some(0), at.len()));
                for (to, at) in at.iter().enumerate() {
                    prop_assert_eq!(&line(copy, to), &last[*at as usize]);
                }
            }
            for (i, last) in last.iter().enumerate() {
                prop_assert_eq!(&line(&costs, i), last);
            }
            drop(copies);
            prop_assert!(costs.heap_bytes() <= 3 * (LINES_PER_PART * (8 + 48 + 2 * 13) + 1100), "{}", costs.heap_bytes());
        }
    }
}
