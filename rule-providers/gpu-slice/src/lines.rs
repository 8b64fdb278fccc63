//! What nodes said last: a node that is as it was says the same to the same need.

use std::collections::VecDeque;

use tautline_sdk::{Lines, NodeCost};

use crate::{cost::Fit, need::Need};

/// Of so many needs lines are kept: pods that come together are often alike.
const NEEDS: usize = 4;

/// When all nodes' costs were void last: [`tautline_gpu::Board::stamp`].
pub(crate) type Stamp = (u32, u32);

/// Lines of the needs that were asked last.
#[derive(Debug, Default)]
pub(crate) struct Kept(VecDeque<(Need, Stamp, Lines)>);

impl Kept {
    /// The lines of a need, as far as they hold; to be [put](Self::put) back.
    pub(crate) fn take(&mut self, need: &Need, stamp: Stamp) -> Lines {
        let known = self.0.iter().position(|(n, ..)| n == need);
        let known = known.and_then(|at| self.0.remove(at));
        known
            .filter(|(_, then, _)| *then == stamp)
            .map_or_else(Lines::default, |(.., lines)| lines)
    }

    pub(crate) fn put(&mut self, need: Need, stamp: Stamp, lines: Lines) {
        self.0.truncate(NEEDS - 1);
        self.0.push_front((need, stamp, lines));
    }

    /// A node has changed.
    pub(crate) fn forget(&mut self, node: &str) {
        for (_, _, lines) in &mut self.0 {
            lines.forget(node);
        }
    }

    /// All nodes have.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// What a node says, as a line.
pub(crate) fn line<'a>(node: &'a str, fit: &'a Fit) -> NodeCost<'a> {
    match fit {
        Fit::Yes { cost, detail, .. } => NodeCost {
            node,
            cost: *cost,
            detail,
            ..NodeCost::default()
        },
        Fit::No(no) => NodeCost {
            node,
            cost: -1,
            code: no.code,
            detail: &no.detail,
            freeable: no.freeable,
        },
    }
}
