//! What rules name now, for people who look.

use std::time::{Duration, Instant};

use super::{Entry, FORGET, KEEP, Memory, Quantity};
use crate::judge::{Bounds, Level};

/// A pair, and a rule that was evaluated for it lately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub a: String,
    pub b: String,
    pub quantity: Quantity,
    pub bounds: Bounds,
    /// As it was judged last.
    pub level: Option<Level>,
}

impl Entry {
    /// For how long its pair is to be measured after a question.
    pub(super) fn keep(&self) -> Duration {
        self.pause.0.mul_f64(2.5).clamp(KEEP, FORGET)
    }
}

impl Memory {
    /// What is still to be measured, in no order.
    pub(crate) fn named(&self, now: Instant) -> Vec<Named> {
        let entries = self.0.lock();
        let current = entries
            .iter()
            .filter(|(_, e)| now.saturating_duration_since(e.asked) < e.keep());
        let named = current.map(|(key, entry)| Named {
            a: key.a.clone(),
            b: key.b.clone(),
            quantity: key.quantity,
            bounds: key.bounds,
            level: entry.level,
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Case;

    #[test]
    fn what_nobody_asks_about_is_not_named() {
        let (memory, start) = (Memory::default(), Instant::now());
        let case = Case {
            a: "b",
            b: "a",
            quantity: Quantity::Latency,
            bounds: Bounds {
                request: Some(5),
                limit: None,
            },
        };
        memory.asked(case, start);
        memory.judged(case, &[4, 4, 4]);
        let named = memory.named(start + KEEP / 2);
        let expected = Named {
            a: "a".to_owned(),
            b: "b".to_owned(),
            quantity: Quantity::Latency,
            bounds: case.bounds,
            level: Some(Level::Compliant),
        };
        assert_eq!(named, [expected]);
        assert_eq!(memory.named(start + KEEP), []);
    }
}
