//! What one provider said of many nodes, in a few allocations.

use crate::nodes::NodeSet;

/// Not named in the answer.
const NO_COST: i64 = i64::MIN;
/// So many bytes of texts that are not needed any more are not worth a copy.
const SLACK: usize = 1024;

/// One provider's answer for the nodes of a question, by their positions; in a few
/// allocations, whatever the number of nodes.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    cost: Vec<i64>,
    /// By position; empty as long as there is none.
    notes: Vec<StoredDetail>,
    /// The texts of all notes.
    text: String,
    /// The code that was written last: most lines have the one before.
    code: Span,
    /// Named in the answer and not in the question; left out.
    pub unknown_nodes: usize,
    /// Named more than once; the worst counts.
    pub duplicate_nodes: usize,
    /// There has been a line with one.
    tie_breaks: bool,
    /// The provider cannot tell apart costs that differ by no more; below 1: it can.
    pub resolution: i64,
    /// Where the next line's node is if the answer keeps the question's order.
    next: usize,
    /// The length of the texts when all of them were needed.
    packed: usize,
}

/// What a provider says of a node besides the cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CostDetail<'a> {
    /// A short stable code, "" if none was given or it is not fit to be one.
    pub code: &'a str,
    pub detail: &'a str,
    /// Usable once pods on the node had gone.
    pub freeable: bool,
    /// The part of the cost that only orders equally good nodes: 0 up to the cost.
    pub tie_break: i64,
}

/// A part of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

/// A note whose texts are elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StoredDetail {
    code: Span,
    detail: Span,
    freeable: bool,
    tie_break: i64,
}

impl Costs {
    /// No costs yet for `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            cost: vec![NO_COST; nodes],
            ..Self::default()
        }
    }

    /// Takes one line of a provider's answer. Several for a node: the worst
    /// counts, whatever their order.
    pub fn add(&mut self, nodes: &NodeSet, node: &str, cost: i64, note: CostDetail<'_>) {
        let at = nodes.position_from(self.next, node);
        let Some(at) = at.filter(|at| *at < self.cost.len()) else {
            self.unknown_nodes += 1;
            return;
        };
        self.next = at + 1;
        let cost = cost.max(NO_COST + 1);
        let note = sanitized(note, cost);
        let old = self.cost[at];
        if old != NO_COST {
            self.duplicate_nodes += 1;
            let before = self.detail(at).unwrap_or_default();
            let worse = match (old < 0, cost < 0) {
                (false, false) => (cost, before.tie_break) > (old, note.tie_break),
                (true, true) => (cost, note) < (old, before),
                (_, new_is_negative) => new_is_negative,
            };
            if !worse {
                return;
            }
        }
        self.cost[at] = cost;
        self.store_detail(at, note);
    }

    /// Takes a line in place of the one before, if any. Of other nodes than these,
    /// nothing.
    pub fn replace(&mut self, nodes: &NodeSet, node: &str, cost: i64, note: CostDetail<'_>) {
        if let Some(at) = nodes.position_from(self.next, node) {
            self.next = at + 1;
            let cost = cost.max(NO_COST + 1);
            self.set(at, cost, sanitized(note, cost));
            self.repack();
        }
    }

    /// Drops the texts that are not needed any more, once they are worth a copy.
    pub fn repack(&mut self) {
        if self.text.len() > 2 * self.packed + SLACK {
            *self = self.select((0..self.cost.len()).map(Some));
        }
    }

    /// The lines at these positions, in this order; at `None` is a node that was not
    /// named.
    pub fn select(&self, at: impl ExactSizeIterator<Item = Option<usize>>) -> Self {
        let mut picked = Self::new(at.len());
        picked.resolution = self.resolution;
        picked.tie_breaks = self.tie_breaks;
        // A copy that grows is copied again and again.
        let share = self.text.len() * at.len() / self.cost.len().max(1);
        picked.text.reserve(share + SLACK);
        if !self.notes.is_empty() {
            picked.notes = vec![StoredDetail::default(); at.len()];
        }
        // The code before, here: most lines have it too.
        let mut before = Span::default();
        for (to, at) in at.enumerate() {
            let Some((at, cost)) = at.and_then(|at| Some((at, *self.cost.get(at)?))) else {
                continue;
            };
            picked.cost[to] = cost;
            let Some(note) = self.notes.get(at) else {
                continue;
            };
            if note.code.start < note.code.end && note.code != before {
                before = note.code;
                picked.intern_code(self.slice(before));
            }
            picked.notes[to] = StoredDetail {
                code: match note.code.start < note.code.end {
                    true => picked.code,
                    false => Span::default(),
                },
                detail: picked.write(self.slice(note.detail)),
                freeable: note.freeable,
                tie_break: note.tie_break,
            };
        }
        picked.packed = picked.text.len();
        picked
    }

    /// Takes over what another answer says at `from`, that the node was not named too.
    pub fn copy_from(&mut self, to: usize, other: &Self, from: usize) {
        let cost = other.cost.get(from).copied().unwrap_or(NO_COST);
        self.set(to, cost, other.detail(from).unwrap_or_default());
    }

    fn set(&mut self, at: usize, cost: i64, note: CostDetail<'_>) {
        if self.cost.len() <= at {
            self.cost.resize(at + 1, NO_COST);
            if !self.notes.is_empty() {
                self.notes.resize(at + 1, StoredDetail::default());
            }
        }
        self.cost[at] = cost;
        self.store_detail(at, note);
    }

    fn store_detail(&mut self, at: usize, note: CostDetail<'_>) {
        if self.notes.is_empty() {
            if note == CostDetail::default() {
                return;
            }
            self.notes = vec![StoredDetail::default(); self.cost.len()];
        }
        if !note.code.is_empty() {
            self.intern_code(note.code);
        }
        self.tie_breaks |= note.tie_break != 0;
        self.notes[at] = StoredDetail {
            code: match note.code {
                "" => Span::default(),
                _ => self.code,
            },
            detail: self.write(note.detail),
            freeable: note.freeable,
            tie_break: note.tie_break,
        };
    }

    /// Makes `self.code` that text.
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

    /// The cost at a position; `None` if the answer did not name the node.
    pub fn get(&self, at: usize) -> Option<i64> {
        self.cost.get(at).copied().filter(|c| *c != NO_COST)
    }

    pub fn detail(&self, at: usize) -> Option<CostDetail<'_>> {
        let kept = self.notes.get(at)?;
        let note = CostDetail {
            code: self.slice(kept.code),
            detail: self.slice(kept.detail),
            freeable: kept.freeable,
            tie_break: kept.tie_break,
        };
        (note != CostDetail::default()).then_some(note)
    }

    /// Bytes held, roughly.
    pub fn heap_bytes(&self) -> usize {
        self.cost.len() * 8 + self.notes.len() * size_of::<StoredDetail>() + self.text.len()
    }

    pub(crate) fn is_usable(&self, at: usize) -> bool {
        self.cost.get(at).is_some_and(|c| *c >= 0)
    }

    /// By position; where the answer did not name the node, below every cost.
    pub(crate) fn by_position(&self) -> &[i64] {
        &self.cost
    }

    /// The part of the cost at a position that only orders equally good nodes.
    pub(crate) fn tie_break(&self, at: usize) -> i64 {
        self.notes.get(at).map_or(0, |note| note.tie_break)
    }

    pub(crate) fn has_tie_breaks(&self) -> bool {
        self.tie_breaks && self.notes.iter().any(|note| note.tie_break != 0)
    }
}

fn sanitized(note: CostDetail<'_>, cost: i64) -> CostDetail<'_> {
    CostDetail {
        code: clean_code(note.code),
        tie_break: note.tie_break.clamp(0, cost.max(0)),
        ..note
    }
}

/// Codes end up in events that are counted by their exact text: letters only, so
/// that no figure makes each node's reason a new one.
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

    /// A cost and its note: a code, a detail, whether it is freeable, the tie-break.
    type Said = (Option<i64>, String, String, bool, i64);

    fn said(costs: &Costs, at: usize) -> Said {
        let note = costs.detail(at).unwrap_or_default();
        let (code, detail) = (note.code.to_owned(), note.detail.to_owned());
        (costs.get(at), code, detail, note.freeable, note.tie_break)
    }

    proptest! {
        /// What was said last counts, in whatever order nodes come and are picked, and
        /// memory is bounded by what is still needed.
        #[test]
        fn replaced_and_picked_lines_are_those_said_last(
            lines in prop::collection::vec((0..6_usize, -2..9_i64, "(Full|Busy)?", "[a-z]{0,9}", any::<bool>(), -2..12_i64), 0..400),
            at in prop::collection::vec(prop::option::of(0..6_usize), 0..12),
        ) {
            let mut nodes = NodeSet::default();
            let mut costs = Costs::default();
            let mut last: Vec<Said> = vec![(None, String::new(), String::new(), false, 0); 6];
            (0..6).for_each(|i| _ = nodes.insert(&format!("n{i}")));
            costs.resolution = 7;
            for (i, cost, code, detail, freeable, tie_break) in lines {
                let note = CostDetail { code: &code, detail: &detail, freeable, tie_break };
                costs.replace(&nodes, &format!("n{i}"), cost, note);
                costs.replace(&nodes, "elsewhere", cost, note);
                last[i] = (Some(cost), code, detail, freeable, tie_break.min(cost).max(0));
                prop_assert!(costs.text.len() <= 2 * 6 * 13 + SLACK + 13, "{costs:?}");
            }
            for (i, last) in last.iter().enumerate() {
                prop_assert_eq!(&said(&costs, i), last);
            }
            let picked = costs.select(at.iter().copied());
            prop_assert_eq!((costs.resolution, picked.resolution), (7, 7));
            for (to, at) in at.iter().enumerate() {
                let none = (None, String::new(), String::new(), false, 0);
                prop_assert_eq!(said(&picked, to), at.map_or(none, |at| last[at].clone()));
            }
        }
    }
}
