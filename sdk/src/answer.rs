//! The costs of nodes, encoded as they are added, since kube-scheduler waits for thousands.

use std::fmt;

use prost::bytes::BufMut;
use tautline_proto::{
    endpoint_cost::{CostScale, NodeCost, put_scale, read_answer},
    ruleprovider::EndpointCostRequest,
};
use tonic::{
    Status,
    codec::{Codec, EncodeBuf, Encoder},
};
use tonic_prost::ProstDecoder;

/// The cost of each node, in any unit that all nodes of the answer share. A node without a cost
/// cannot be used.
///
/// ```
/// use tautline_sdk::CostAnswer;
///
/// let mut answer = CostAnswer::with_capacity(2);
/// answer.usable("node-a", 12, "12ms to db-0");
/// answer.unusable("node-b", "OverLimit", "31ms to db-0 > 20ms", false);
/// assert_eq!(answer.nodes()[1].cost, -1);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CostAnswer {
    lines: Vec<u8>,
    /// True if the costs depend on which pod asks, so that a caller that stores costs for all pods
    /// of a kind (without a name and UID) must ask for each pod.
    pub per_pod: bool,
    /// The difference up to which costs are equally good, such as measurement noise. With other
    /// rules only the excess counts. With zero every difference counts.
    pub resolution: i64,
    /// The cost of a node that just meets the rule's request. Nodes of at most this cost (without
    /// tie-break) are within the request, and equally good unless the policy prefers the nearest.
    /// `None` if the rule has no request, or no cost stands for it.
    pub request_cost: Option<i64>,
}

impl CostAnswer {
    /// Creates an empty answer with room for `nodes` nodes.
    pub fn with_capacity(nodes: usize) -> Self {
        // The size of a name, a number and a few words.
        const LINE_BYTES: usize = 96;
        Self {
            lines: Vec::with_capacity(nodes.saturating_mul(LINE_BYTES)),
            ..Self::default()
        }
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

    /// Adds an unusable node; `freeable` is true if it could be used without pods that are on it.
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

    /// Returns all lines, in the order of their addition.
    pub fn nodes(&self) -> Vec<NodeCost<'_>> {
        let mut nodes = Vec::new();
        self.for_each(|node| nodes.push(node));
        nodes
    }

    /// Calls `each` for the lines in the order of their addition.
    pub(crate) fn for_each<'a>(&'a self, each: impl FnMut(NodeCost<'a>)) {
        // Lines are written here, so they can be read.
        _ = read_answer(&self.lines, each);
    }

    /// Writes an `EndpointCostResponse`.
    pub(crate) fn put(&self, out: &mut impl BufMut) {
        out.put_slice(&self.lines);
        let scale = CostScale {
            resolution: self.resolution,
            request_cost: self.request_cost,
        };
        put_scale(scale, out);
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
            .field("per_pod", &self.per_pod)
            .field("resolution", &self.resolution)
            .field("request_cost", &self.request_cost)
            .finish()
    }
}

/// The codec of `EndpointCost`, whose answers are encoded already.
pub(crate) struct CostCodec;

impl Codec for CostCodec {
    type Encode = CostAnswer;
    type Decode = EndpointCostRequest;
    type Encoder = Self;
    type Decoder = ProstDecoder<EndpointCostRequest>;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::default()
    }
}

impl Encoder for CostCodec {
    type Item = CostAnswer;
    type Error = Status;

    fn encode(&mut self, answer: CostAnswer, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(answer.lines.len());
        answer.put(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tautline_proto::ruleprovider as wire;

    use super::*;

    #[test]
    fn put_writes_every_line() {
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
        (answer.resolution, answer.request_cost) = (5, Some(0));
        let mut sent = Vec::new();
        answer.put(&mut sent);
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
            resolution: 5,
            request_cost: Some(0),
        };
        assert_eq!(wire::EndpointCostResponse::decode(&*sent), Ok(whole));
    }
}
