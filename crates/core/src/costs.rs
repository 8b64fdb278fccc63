//! One provider's costs of many nodes, in a few allocations.

use crate::nodes::NodeSet;

const NO_COST: i64 = i64::MIN;
/// Bytes of unused texts that do not justify a copy.
const SLACK: usize = 1024;

/// One provider's answer for the nodes of a request, in few allocations for any number of nodes.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    cost: Vec<i64>,
    /// By position; empty until a line has a detail.
    details: Vec<StoredDetail>,
    text: String,
    /// The last code: most lines repeat it.
    code: Span,
    /// Nodes in the answer that the request does not name; left out.
    pub unknown_nodes: usize,
    /// Nodes that the answer names more than once; the worst line counts.
    pub duplicate_nodes: usize,
    tie_breaks: bool,
    /// Costs that differ by at most this are equally good; below 1 every difference counts.
    pub resolution: i64,
    /// The cost, without tie-break, up to which a node is within the rule's request; `None` if the
    /// provider does not say.
    pub request_cost: Option<i64>,
    /// The next line's node if the answer keeps the request's order.
    next: usize,
    /// The length of the texts when all were in use.
    packed: usize,
}

/// The parts of a provider's line besides node and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CostDetail<'a> {
    /// A short stable code; empty without a valid one.
    pub code: &'a str,
    /// A text for people; may hold figures.
    pub detail: &'a str,
    /// The node could be used if pods on it were removed.
    pub freeable: bool,
    /// The part of the cost that only orders equally good nodes: from 0 to the cost.
    pub tie_break: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StoredDetail {
    code: Span,
    detail: Span,
    freeable: bool,
    tie_break: i64,
}

impl Costs {
    /// `nodes` nodes without costs.
    pub fn new(nodes: usize) -> Self {
        Self {
            cost: vec![NO_COST; nodes],
            ..Self::default()
        }
    }

    /// Adds a line of a provider's answer; of several for a node the worst counts.
    pub fn add(&mut self, nodes: &NodeSet, node: &str, cost: i64, detail: CostDetail<'_>) {
        let at = nodes.position_from(self.next, node);
        let Some(at) = at.filter(|at| *at < self.cost.len()) else {
            self.unknown_nodes += 1;
            return;
        };
        self.next = at + 1;
        let cost = cost.max(NO_COST + 1);
        let detail = sanitized(detail, cost);
        let old = self.cost[at];
        if old != NO_COST {
            self.duplicate_nodes += 1;
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
        self.cost[at] = cost;
        self.store_detail(at, detail);
    }

    /// Sets the line at a position.
    pub fn put(&mut self, at: usize, cost: i64, detail: CostDetail<'_>) {
        let cost = cost.max(NO_COST + 1);
        self.set(at, cost, sanitized(detail, cost));
        self.repack();
    }

    /// Removes the line at a position.
    pub fn remove(&mut self, at: usize) {
        if at < self.cost.len() {
            self.set(at, NO_COST, CostDetail::default());
        }
    }

    /// Drops unused texts once they justify a copy.
    fn repack(&mut self) {
        if self.text.len() > 2 * self.packed + SLACK {
            *self = self.select((0..self.cost.len()).map(Some));
        }
    }

    /// The lines at these positions, in this order; `None` gives a node without a line.
    pub fn select(&self, at: impl ExactSizeIterator<Item = Option<usize>>) -> Self {
        let mut picked = Self::new(at.len());
        picked.resolution = self.resolution;
        picked.request_cost = self.request_cost;
        picked.tie_breaks = self.tie_breaks;
        // Reserve once: a growing text is copied repeatedly.
        let share = self.text.len() * at.len() / self.cost.len().max(1);
        picked.text.reserve(share + SLACK);
        if !self.details.is_empty() {
            picked.details = vec![StoredDetail::default(); at.len()];
        }
        let mut before = Span::default();
        for (to, at) in at.enumerate() {
            let Some((at, cost)) = at.and_then(|at| Some((at, *self.cost.get(at)?))) else {
                continue;
            };
            picked.cost[to] = cost;
            let Some(detail) = self.details.get(at) else {
                continue;
            };
            if detail.code.start < detail.code.end && detail.code != before {
                before = detail.code;
                picked.intern_code(self.slice(before));
            }
            picked.details[to] = StoredDetail {
                code: match detail.code.start < detail.code.end {
                    true => picked.code,
                    false => Span::default(),
                },
                detail: picked.write(self.slice(detail.detail)),
                freeable: detail.freeable,
                tie_break: detail.tie_break,
            };
        }
        picked.packed = picked.text.len();
        picked
    }

    fn set(&mut self, at: usize, cost: i64, detail: CostDetail<'_>) {
        if self.cost.len() <= at {
            self.cost.resize(at + 1, NO_COST);
            if !self.details.is_empty() {
                self.details.resize(at + 1, StoredDetail::default());
            }
        }
        self.cost[at] = cost;
        self.store_detail(at, detail);
    }

    fn store_detail(&mut self, at: usize, detail: CostDetail<'_>) {
        if self.details.is_empty() {
            if detail == CostDetail::default() {
                return;
            }
            self.details = vec![StoredDetail::default(); self.cost.len()];
        }
        if !detail.code.is_empty() {
            self.intern_code(detail.code);
        }
        self.tie_breaks |= detail.tie_break != 0;
        self.details[at] = StoredDetail {
            code: match detail.code {
                "" => Span::default(),
                _ => self.code,
            },
            detail: self.write(detail.detail),
            freeable: detail.freeable,
            tie_break: detail.tie_break,
        };
    }

    fn intern_code(&mut self, code: &str) {
        if self.slice(self.code) != code {
            self.code = self.write(code);
        }
    }

    fn write(&mut self, text: &str) -> Span {
        // Answers are bounded far below 4 GiB, so offsets fit.
        let at = |text: &String| u32::try_from(text.len()).unwrap_or(u32::MAX);
        let start = at(&self.text);
        self.text.push_str(text);
        Span {
            start,
            end: at(&self.text),
        }
    }

    fn slice(&self, span: Span) -> &str {
        let range = span.start as usize..span.end as usize;
        self.text.get(range).unwrap_or_default()
    }

    /// The cost at a position; `None` if the answer does not name the node.
    pub fn get(&self, at: usize) -> Option<i64> {
        self.cost.get(at).copied().filter(|c| *c != NO_COST)
    }

    /// The other parts of the line at a position; `None` if all are empty.
    pub fn detail(&self, at: usize) -> Option<CostDetail<'_>> {
        let stored = self.details.get(at)?;
        let detail = CostDetail {
            code: self.slice(stored.code),
            detail: self.slice(stored.detail),
            freeable: stored.freeable,
            tie_break: stored.tie_break,
        };
        (detail != CostDetail::default()).then_some(detail)
    }

    /// Approximate size in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.cost.len() * 8 + self.details.len() * size_of::<StoredDetail>() + self.text.len()
    }

    pub(crate) fn is_usable(&self, at: usize) -> bool {
        self.cost.get(at).is_some_and(|c| *c >= 0)
    }

    pub(crate) fn by_position(&self) -> &[i64] {
        &self.cost
    }

    pub(crate) fn tie_break(&self, at: usize) -> i64 {
        self.details.get(at).map_or(0, |detail| detail.tie_break)
    }

    pub(crate) fn has_tie_breaks(&self) -> bool {
        self.tie_breaks && self.details.iter().any(|detail| detail.tie_break != 0)
    }
}

fn sanitized(detail: CostDetail<'_>, cost: i64) -> CostDetail<'_> {
    CostDetail {
        code: clean_code(detail.code),
        tie_break: detail.tie_break.clamp(0, cost.max(0)),
        ..detail
    }
}

/// Letters only: events are counted by exact text, so a figure would make each node's reason new.
fn clean_code(code: &str) -> &str {
    let fit = code.len() <= 40
        && code.starts_with(|c: char| c.is_ascii_uppercase())
        && code.chars().all(|c| c.is_ascii_alphabetic());
    if fit { code } else { "" }
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

    proptest! {
        /// The last line of a node counts, and memory is bounded by the texts in use.
        #[test]
        fn put_and_select_give_the_last_lines(
            lines in prop::collection::vec((0..6_usize, -2..9_i64, "(Full|Busy)?", "[a-z]{0,9}", any::<bool>(), -2..12_i64), 0..400),
            at in prop::collection::vec(prop::option::of(0..6_usize), 0..12),
        ) {
            let mut costs = Costs::default();
            let mut last: Vec<Line> = vec![(None, String::new(), String::new(), false, 0); 6];
            (costs.resolution, costs.request_cost) = (7, Some(0));
            for (i, cost, code, detail, freeable, tie_break) in lines {
                let note = CostDetail { code: &code, detail: &detail, freeable, tie_break };
                costs.put(i, cost, note);
                last[i] = (Some(cost), code, detail, freeable, tie_break.min(cost).max(0));
                prop_assert!(costs.text.len() <= 2 * 6 * 13 + SLACK + 13, "{costs:?}");
            }
            for (i, last) in last.iter().enumerate() {
                prop_assert_eq!(&line(&costs, i), last);
            }
            costs.remove(3);
            last[3] = (None, String::new(), String::new(), false, 0);
            let picked = costs.select(at.iter().copied());
            prop_assert_eq!((costs.resolution, picked.resolution), (7, 7));
            prop_assert_eq!((costs.request_cost, picked.request_cost), (Some(0), Some(0)));
            for (to, at) in at.iter().enumerate() {
                let none = (None, String::new(), String::new(), false, 0);
                prop_assert_eq!(line(&picked, to), at.map_or(none, |at| last[at].clone()));
            }
        }
    }
}
