//! What nodes said last: a node that is as it was says the same to the same need.

use std::collections::VecDeque;

use tautline_sdk::{AnswerCache, ChangeLog, NodeCost};

use crate::{cost::Fit, need::Need};

/// Of so many needs lines are kept: pods that come together are often alike.
const NEEDS: usize = 4;

/// When all nodes' costs were void last: [`tautline_gpu_placement::Board::stamp`].
pub(crate) type Stamp = (u32, u32);

/// Lines of the needs that were asked last, and what has changed.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    needs: VecDeque<(Need, AnswerCache)>,
    stamp: Stamp,
    changes: ChangeLog,
}

impl Kept {
    /// Nothing holds if all costs have become void since.
    pub(crate) fn hold(&mut self, stamp: Stamp) {
        if self.stamp != stamp {
            self.clear();
            self.stamp = stamp;
        }
    }

    /// The lines of a need; to be [put](Self::put) back.
    pub(crate) fn take(&mut self, need: &Need) -> AnswerCache {
        let known = self.needs.iter().position(|(n, _)| n == need);
        let known = known.and_then(|at| self.needs.remove(at));
        known.map_or_else(AnswerCache::default, |(_, lines)| lines)
    }

    pub(crate) fn put(&mut self, need: Need, lines: AnswerCache) {
        self.needs.truncate(NEEDS - 1);
        self.needs.push_front((need, lines));
    }

    pub(crate) fn changes(&self) -> &ChangeLog {
        &self.changes
    }

    /// A node has changed.
    pub(crate) fn forget(&mut self, node: &str) {
        self.changes.record_node(node);
        for (_, lines) in &mut self.needs {
            lines.invalidate(node);
        }
    }

    /// All nodes have.
    pub(crate) fn clear(&mut self) {
        self.changes.record_all();
        self.needs.clear();
    }
}

/// What a node says, as a line.
pub(crate) fn line<'a>(node: &'a str, fit: &'a Fit) -> NodeCost<'a> {
    match fit {
        Fit::Yes {
            cost,
            tie_break,
            detail,
            ..
        } => NodeCost {
            node,
            cost: *cost,
            tie_break: *tie_break,
            detail,
            ..NodeCost::default()
        },
        Fit::No(no) => NodeCost {
            node,
            cost: -1,
            code: no.code,
            detail: &no.detail,
            freeable: no.freeable,
            ..NodeCost::default()
        },
    }
}
