//! The answer about costs: written for the wire as it is made, since it has
//! thousands of nodes and the scheduler waits.

use std::{fmt, time::Duration};

use prost::bytes::Bytes;
use tautline_proto::endpoint_cost::{NodeCost, Validity, put_validity, read_answer};

use crate::AnswerCache;

/// Costs in any unit that is the same for all nodes of the answer. A node that
/// is not named cannot be used.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CostAnswer {
    /// `nodeAndCost` of an `EndpointCostResponse`.
    lines: Vec<u8>,
    /// For how long each line answers the same question, whichever pod of the same
    /// labels, annotations and requests asks, all of them with claims or all without, and
    /// beside whichever other nodes. Zero: for this call only. With a `version`: for how
    /// long no later one will be known. Who uses the answer again asks for the next before
    /// this one ends.
    pub valid_for: Duration,
    /// What the lines are as of: [`Changes::version`](crate::Changes::version). Zero:
    /// they are not numbered.
    pub version: u64,
    /// The question's `known_version` if all nodes are named whose line has changed
    /// since, eligible or not. Zero: the eligible nodes are.
    pub changed_since: u64,
    /// Costs that differ by no more are equally good, as far as the provider can tell: what
    /// an instrument cannot tell apart, what no workload would notice. Beside other rules
    /// only what is more than that counts. Zero: every difference counts.
    pub resolution: i64,
}

impl CostAnswer {
    /// No nodes yet, with room for so many.
    pub fn with_capacity(nodes: usize) -> Self {
        // A name, a number and a few words.
        const LINE: usize = 96;
        Self {
            lines: Vec::with_capacity(nodes.saturating_mul(LINE)),
            ..Self::default()
        }
    }

    /// The same answer, good for a while.
    #[must_use]
    pub fn valid_for(self, valid_for: Duration) -> Self {
        Self { valid_for, ..self }
    }

    /// Adds a node that can be used; a negative cost would say that it cannot.
    pub fn usable(&mut self, node: impl AsRef<str>, cost: i64, detail: impl AsRef<str>) {
        self.push(NodeCost {
            node: node.as_ref(),
            cost,
            detail: detail.as_ref(),
            ..NodeCost::default()
        });
    }

    /// Adds a node that cannot be used, with a code ("OverLimit") and a detail.
    pub fn unusable(
        &mut self,
        node: impl AsRef<str>,
        code: &str,
        detail: impl AsRef<str>,
        freeable: bool,
    ) {
        self.push(NodeCost {
            node: node.as_ref(),
            cost: -1,
            code,
            detail: detail.as_ref(),
            freeable,
            ..NodeCost::default()
        });
    }

    /// Adds a node.
    pub fn push(&mut self, node: NodeCost<'_>) {
        node.put(&mut self.lines);
    }

    /// Adds a node, and keeps its line for other answers.
    pub fn push_and_cache(&mut self, node: NodeCost<'_>, kept: &mut AnswerCache) {
        self.lines.extend_from_slice(kept.insert(node));
    }

    /// Adds a node as it was kept; false: nothing is kept of it.
    pub fn push_cached(&mut self, node: &str, kept: &mut AnswerCache) -> bool {
        let line = kept.find(node);
        self.lines.extend_from_slice(line.unwrap_or_default());
        line.is_some()
    }

    /// What was added, in its order.
    pub fn nodes(&self) -> Vec<NodeCost<'_>> {
        let mut nodes = Vec::new();
        // They were written by `push`.
        _ = read_answer(&self.lines, |node| nodes.push(node));
        nodes
    }

    /// As an `EndpointCostResponse`.
    pub(crate) fn into_wire(mut self) -> Bytes {
        let valid = Validity {
            millis: i64::try_from(self.valid_for.as_millis()).unwrap_or(i64::MAX),
            version: self.version,
            changed_since: self.changed_since,
            resolution: self.resolution,
        };
        put_validity(valid, &mut self.lines);
        self.lines.into()
    }
}

impl<N: AsRef<str>> FromIterator<(N, i64)> for CostAnswer {
    fn from_iter<I: IntoIterator<Item = (N, i64)>>(costs: I) -> Self {
        let mut answer = Self::default();
        for (node, cost) in costs {
            answer.usable(node, cost, "");
        }
        answer
    }
}

impl fmt::Debug for CostAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CostAnswer")
            .field("nodes", &self.nodes())
            .field("valid_for", &self.valid_for)
            .field("version", &self.version)
            .field("changed_since", &self.changed_since)
            .field("resolution", &self.resolution)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tautline_proto::ruleprovider as wire;

    use super::*;

    #[test]
    fn what_is_added_is_what_is_sent() {
        let mut answer: CostAnswer = [("a", 7)].into_iter().collect();
        answer.usable(String::from("b"), i64::MAX, "near");
        answer.unusable("c", "OverLimit", format!("{}ms", 31), true);
        let ordered = NodeCost {
            node: "d",
            cost: 9,
            tie_break: 2,
            ..NodeCost::default()
        };
        answer.push(ordered);
        let line = |node, cost, code, detail, freeable| NodeCost {
            node,
            cost,
            code,
            detail,
            freeable,
            tie_break: 0,
        };
        let said = [
            line("a", 7, "", "", false),
            line("b", i64::MAX, "", "near", false),
            line("c", -1, "OverLimit", "31ms", true),
            ordered,
        ];
        assert_eq!(answer.nodes(), said);
        (answer.version, answer.changed_since, answer.resolution) = (9, 7, 5);
        let sent = answer.valid_for(Duration::from_secs(3)).into_wire();
        let nodes = said.map(|n| wire::NodeCost {
            node: n.node.into(),
            cost: n.cost,
            reason: n.code.into(),
            detail: n.detail.into(),
            freeable: n.freeable,
            tie_break: n.tie_break,
        });
        let whole = wire::EndpointCostResponse {
            node_and_cost: nodes.to_vec(),
            valid_for_millis: 3_000,
            version: 9,
            changed_since: 7,
            resolution: 5,
        };
        assert_eq!(wire::EndpointCostResponse::decode(sent), Ok(whole));
    }
}
