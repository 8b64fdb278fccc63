//! The lines of one part of a cost table, in few allocations.

use super::CostDetail;

/// The cost that marks a position without a line.
pub(super) const NO_COST: i64 = i64::MIN;
/// The size of unused texts that does not justify a copy, beyond the size of the texts in use.
const UNUSED_TEXT_BYTES: usize = 1024;

/// The lines of one part, by position.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    cost: Vec<i64>,
    /// The details by position; empty until a line has one.
    details: Vec<StoredDetail>,
    text: String,
    /// The last code that was written: most lines repeat it.
    code: Span,
    /// The length of `text` in bytes when all of it was last in use.
    packed: usize,
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

impl Lines {
    /// Sets the line at a position.
    pub(super) fn put(&mut self, at: usize, cost: i64, detail: CostDetail<'_>) {
        let cost = cost.max(NO_COST + 1);
        self.set(at, cost, sanitized(detail, cost));
        self.repack();
    }

    /// Removes the line at a position.
    pub(super) fn remove(&mut self, at: usize) {
        if at < self.cost.len() {
            self.set(at, NO_COST, CostDetail::default());
        }
    }

    fn set(&mut self, at: usize, cost: i64, detail: CostDetail<'_>) {
        if self.cost.len() <= at {
            self.cost.resize(at + 1, NO_COST);
        }
        self.cost[at] = cost;
        self.store_detail(at, detail);
    }

    fn store_detail(&mut self, at: usize, detail: CostDetail<'_>) {
        if self.details.is_empty() && detail == CostDetail::default() {
            return;
        }
        if self.details.len() < self.cost.len() {
            self.details
                .resize(self.cost.len(), StoredDetail::default());
        }
        if !detail.code.is_empty() && self.slice(self.code) != detail.code {
            self.code = self.write(detail.code);
        }
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

    /// Drops unused texts once they are large enough to justify a copy.
    fn repack(&mut self) {
        if self.text.len() <= 2 * self.packed + UNUSED_TEXT_BYTES {
            return;
        }
        let mut packed = Self::default();
        for (at, cost) in self.cost.iter().enumerate() {
            packed.set(at, *cost, self.detail(at).unwrap_or_default());
        }
        packed.packed = packed.text.len();
        *self = packed;
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

    /// Returns the cost at a position; `None` if the position has no line.
    pub(super) fn get(&self, at: usize) -> Option<i64> {
        self.cost.get(at).copied().filter(|c| *c != NO_COST)
    }

    /// Returns the other parts of the line at a position; `None` if all are empty.
    pub(super) fn detail(&self, at: usize) -> Option<CostDetail<'_>> {
        let stored = self.details.get(at)?;
        let detail = CostDetail {
            code: self.slice(stored.code),
            detail: self.slice(stored.detail),
            freeable: stored.freeable,
            tie_break: stored.tie_break,
        };
        (detail != CostDetail::default()).then_some(detail)
    }

    pub(super) fn tie_break(&self, at: usize) -> i64 {
        self.details.get(at).map_or(0, |detail| detail.tie_break)
    }

    /// Returns the approximate size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.cost.len() * 8 + self.details.len() * size_of::<StoredDetail>() + self.text.len()
    }
}

/// Returns the detail without an invalid code, and with a tie-break from 0 to the cost.
pub(super) fn sanitized(detail: CostDetail<'_>, cost: i64) -> CostDetail<'_> {
    CostDetail {
        code: clean_code(detail.code),
        tie_break: detail.tie_break.clamp(0, cost.max(0)),
        ..detail
    }
}

/// Returns a valid code, else an empty one. A valid code has letters only: events are counted by
/// exact text, so a figure would make each node's reason new.
fn clean_code(code: &str) -> &str {
    let fit = code.len() <= 40
        && code.starts_with(|c: char| c.is_ascii_uppercase())
        && code.chars().all(|c| c.is_ascii_alphabetic());
    if fit { code } else { "" }
}
