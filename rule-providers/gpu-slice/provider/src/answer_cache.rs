use std::collections::VecDeque;

use tautline_sdk::{AnswerCache, ChangeLog, NodeCost};

use crate::{fit::Fit, gpu_request::GpuRequest};

/// Requests whose answers are cached: pods that come together are often alike.
const REQUESTS: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct RecentAnswers {
    requests: VecDeque<(GpuRequest, AnswerCache)>,
    /// [`tautline_gpu_placement::CostCache::version`] at the last answer.
    version: (u32, u32),
    changes: ChangeLog,
}

impl RecentAnswers {
    pub(crate) fn validate(&mut self, version: (u32, u32)) {
        if self.version != version {
            self.clear();
            self.version = version;
        }
    }

    pub(crate) fn take(&mut self, request: &GpuRequest) -> AnswerCache {
        let known = self.requests.iter().position(|(r, _)| r == request);
        let known = known.and_then(|at| self.requests.remove(at));
        known.map_or_else(AnswerCache::default, |(_, answers)| answers)
    }

    pub(crate) fn put(&mut self, request: GpuRequest, answers: AnswerCache) {
        self.requests.truncate(REQUESTS - 1);
        self.requests.push_front((request, answers));
    }

    pub(crate) fn changes(&self) -> &ChangeLog {
        &self.changes
    }

    pub(crate) fn forget(&mut self, node: &str) {
        self.changes.record_node(node);
        for (_, answers) in &mut self.requests {
            answers.invalidate(node);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.changes.record_all();
        self.requests.clear();
    }
}

pub(crate) fn node_cost<'a>(node: &'a str, fit: &'a Fit) -> NodeCost<'a> {
    match fit {
        Fit::Usable {
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
        Fit::Unusable(unfit) => NodeCost {
            node,
            cost: -1,
            code: unfit.code,
            detail: &unfit.detail,
            freeable: unfit.freeable,
            ..NodeCost::default()
        },
    }
}
