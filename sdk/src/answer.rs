//! The costs of nodes, encoded as they are added: kube-scheduler waits for thousands.

use std::{fmt, time::Duration};

use prost::bytes::Bytes;
use tautline_proto::endpoint_cost::{
    NodeCost, Validity, put_counted_uid, put_validity, read_answer, read_in_flight,
};

use crate::AnswerCache;

/// The cost of each node, in any unit that all nodes of the answer share. A node without a cost
/// cannot be used.
///
/// ```
/// use std::time::Duration;
/// use tautline_sdk::CostAnswer;
///
/// let mut answer = CostAnswer::with_capacity(2);
/// answer.usable("node-a", 12, "12ms to db-0");
/// answer.unusable("node-b", "OverLimit", "31ms to db-0 > 20ms", false);
/// // Any pod of the same shape may reuse the answer for 500 ms.
/// let answer = answer.valid_for(Duration::from_millis(500));
/// assert_eq!(answer.nodes()[1].cost, -1);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CostAnswer {
    lines: Vec<u8>,
    /// How long each line is valid for every pod with the same labels, annotations and requests
    /// (all with ResourceClaims, or all without); zero: for this call only. With a `version`: how
    /// long no later version will exist. Callers renew the answer before it ends.
    pub valid_for: Duration,
    /// The [`ChangeLog::version`](crate::ChangeLog::version) of the lines; zero without one.
    pub version: u64,
    /// The request's `known_version` if the lines are all that changed since, eligible or not. Zero
    /// if they are those of the eligible nodes.
    pub changed_since: u64,
    /// Costs that differ by at most this are equally good (measurement noise, for example). With
    /// other rules only the excess counts. Zero: every difference counts.
    pub resolution: i64,
    /// The cost of a node that just meets the rule's request: nodes of at most this cost (without
    /// tie-break) are within the request, and equally good unless the policy prefers the nearest.
    /// `None`: the rule has no request, or none that a cost stands for.
    pub request_cost: Option<i64>,
}

impl CostAnswer {
    /// An empty answer with room for `nodes` nodes.
    pub fn with_capacity(nodes: usize) -> Self {
        // A name, a number and a few words.
        const LINE: usize = 96;
        Self {
            lines: Vec::with_capacity(nodes.saturating_mul(LINE)),
            ..Self::default()
        }
    }

    /// Sets [`valid_for`](Self#structfield.valid_for).
    #[must_use]
    pub fn valid_for(self, valid_for: Duration) -> Self {
        Self { valid_for, ..self }
    }

    /// Adds a usable node. A negative cost makes it unusable.
    pub fn usable(&mut self, node: impl AsRef<str>, cost: i64, detail: impl AsRef<str>) {
        self.push(NodeCost {
            node: node.as_ref(),
            cost,
            detail: detail.as_ref(),
            ..NodeCost::default()
        });
    }

    /// Adds an unusable node; `freeable` if it could be used without pods that are on it.
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

    /// Adds a node and caches its line for other answers.
    pub fn push_and_cache(&mut self, node: NodeCost<'_>, cache: &mut AnswerCache) {
        self.lines.extend_from_slice(cache.insert(node));
    }

    /// Adds a node's cached line; false without one.
    pub fn push_cached(&mut self, node: &str, cache: &mut AnswerCache) -> bool {
        let line = cache.find(node);
        self.lines.extend_from_slice(line.unwrap_or_default());
        line.is_some()
    }

    /// Adds the cost of a node with the request's pods in flight there. It replaces the node's
    /// other line, for this call only.
    pub fn push_in_flight(&mut self, node: NodeCost<'_>) {
        node.put_in_flight(&mut self.lines);
    }

    /// Reports that the provider counts a pod in flight (its UID) by its own view of the cluster:
    /// the caller no longer sends it.
    pub fn push_counted(&mut self, uid: &str) {
        put_counted_uid(uid, &mut self.lines);
    }

    /// The lines of [`push_in_flight`](Self::push_in_flight), in the order of their addition.
    pub fn in_flight_nodes(&self) -> Vec<NodeCost<'_>> {
        let mut nodes = Vec::new();
        _ = read_in_flight(&self.lines, |node| nodes.push(node), |_| {});
        nodes
    }

    /// The UIDs of [`push_counted`](Self::push_counted).
    pub fn counted(&self) -> Vec<&str> {
        let mut uids = Vec::new();
        _ = read_in_flight(&self.lines, |_| {}, |uid| uids.push(uid));
        uids
    }

    /// All lines, in the order of their addition.
    pub fn nodes(&self) -> Vec<NodeCost<'_>> {
        let mut nodes = Vec::new();
        _ = read_answer(&self.lines, |node| nodes.push(node));
        nodes
    }

    pub(crate) fn into_wire(mut self) -> Bytes {
        let valid = Validity {
            millis: i64::try_from(self.valid_for.as_millis()).unwrap_or(i64::MAX),
            version: self.version,
            changed_since: self.changed_since,
            resolution: self.resolution,
            request_cost: self.request_cost,
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
            .field("in_flight_nodes", &self.in_flight_nodes())
            .field("counted", &self.counted())
            .field("valid_for", &self.valid_for)
            .field("version", &self.version)
            .field("changed_since", &self.changed_since)
            .field("resolution", &self.resolution)
            .field("request_cost", &self.request_cost)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tautline_proto::ruleprovider as wire;

    use super::*;

    #[test]
    fn into_wire_sends_every_line() {
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
        let lines_added = [
            line("a", 7, "", "", false),
            line("b", i64::MAX, "", "near", false),
            line("c", -1, "OverLimit", "31ms", true),
            ordered,
        ];
        assert_eq!(answer.nodes(), lines_added);
        answer.push_in_flight(ordered);
        answer.push_counted("u1");
        assert_eq!(answer.nodes(), lines_added);
        assert_eq!(answer.in_flight_nodes(), [ordered]);
        assert_eq!(answer.counted(), ["u1"]);
        (answer.version, answer.changed_since, answer.resolution) = (9, 7, 5);
        answer.request_cost = Some(0);
        let sent = answer.valid_for(Duration::from_secs(3)).into_wire();
        let on_wire = |n: NodeCost<'_>| wire::NodeCost {
            node: n.node.into(),
            cost: n.cost,
            reason: n.code.into(),
            detail: n.detail.into(),
            freeable: n.freeable,
            tie_break: n.tie_break,
        };
        let whole = wire::EndpointCostResponse {
            node_and_cost: lines_added.map(on_wire).to_vec(),
            valid_for_millis: 3_000,
            version: 9,
            changed_since: 7,
            resolution: 5,
            in_flight_nodes: vec![on_wire(ordered)],
            counted_uids: vec!["u1".into()],
            request_cost: Some(0),
        };
        assert_eq!(wire::EndpointCostResponse::decode(sent), Ok(whole));
    }
}
