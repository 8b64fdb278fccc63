//! Sends and receives encoded messages. `EndpointCost` needs no string per node: names are encoded
//! once, and read in place.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use prost::Message;
use tautline_core::{
    nodes::NodeSet,
    planning::{CostDetail, Costs},
    text,
};
use tautline_proto::endpoint_cost::{MalformedMessage, put_eligible_node, read_answer};
use tautline_traces::TraceHeaders;
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::Channel,
};

pub(crate) const LONGEST_DETAIL_CHARS: usize = 200;

pub(crate) fn encode_nodes(nodes: &NodeSet) -> Bytes {
    let mut out = Vec::with_capacity(nodes.iter().map(|n| n.len() + 4).sum());
    for name in nodes.iter() {
        put_eligible_node(name, &mut out);
    }
    out.into()
}

pub(crate) fn read_costs(answer: &[u8], nodes: &NodeSet) -> Result<Costs, MalformedMessage> {
    let mut costs = Costs::new(nodes.len());
    let scale = read_answer(answer, |line| {
        let note = CostDetail {
            code: line.code,
            detail: &text::sanitize(line.detail, LONGEST_DETAIL_CHARS),
            freeable: line.freeable,
            tie_break: line.tie_break,
        };
        costs.add(nodes, line.node, line.cost, note);
    })?;
    (costs.resolution, costs.request_cost) = (scale.resolution, scale.request_cost);
    Ok(costs)
}

/// Parses bytes as a provider's answer, for the fuzz target: every message that prost accepts is
/// accepted.
#[doc(hidden)]
pub fn fuzz_answer(data: &[u8]) {
    use tautline_proto::ruleprovider::EndpointCostResponse;

    let nodes: NodeSet = ["a", "node-1"].into_iter().collect();
    let read = read_costs(data, &nodes);
    if EndpointCostResponse::decode(data).is_ok() {
        assert!(read.is_ok(), "{read:?}");
    }
}

/// An encoded message in two parts, of which rounds share the second one; concatenated fields are a
/// protobuf message.
pub(crate) type RawMessage = [Bytes; 2];

/// A call that can be sent to several addresses, and again as a probe.
#[derive(Clone, Debug)]
pub(crate) struct RawCall {
    /// The method, as `/SERVICE/METHOD`.
    pub rpc: &'static str,
    pub message: RawMessage,
    pub max_answer_bytes: usize,
}

impl RawCall {
    /// Sends it; the provider gets the time that is left, so that it stops at the same time.
    pub(crate) async fn send(
        &self,
        channel: Channel,
        left: Duration,
        headers: Option<&TraceHeaders>,
    ) -> Result<Bytes, Status> {
        let mut client = Grpc::new(channel).max_decoding_message_size(self.max_answer_bytes);
        let ready = client.ready().await;
        ready.map_err(|e| Status::from_error(Box::new(e)))?;
        let mut request = Request::new(self.message.clone());
        request.set_timeout(left);
        if let Some(headers) = headers {
            headers.insert(request.metadata_mut().as_mut());
        }
        let path = PathAndQuery::from_static(self.rpc);
        Ok(client.unary(request, path, RawCodec).await?.into_inner())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = RawMessage;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }
    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for RawCodec {
    type Item = RawMessage;
    type Error = Status;

    fn encode(&mut self, item: RawMessage, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.reserve(item.iter().map(Bytes::len).sum());
        item.into_iter().for_each(|part| dst.put(part));
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(src.copy_to_bytes(src.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tautline_proto::ruleprovider::{EndpointCostRequest, EndpointCostResponse, NodeCost};

    #[test]
    fn encode_nodes_agrees_with_prost() {
        let nodes: NodeSet = ["a", "b-1.example", "c"].into_iter().collect();
        let mut whole = EndpointCostRequest {
            peer_nodes: vec!["p".into()],
            ..EndpointCostRequest::default()
        };
        let joined = [whole.encode_to_vec(), encode_nodes(&nodes).to_vec()].concat();
        whole.eligible_nodes = nodes.iter().map(str::to_owned).collect();
        assert_eq!(
            EndpointCostRequest::decode(joined.as_slice()).unwrap(),
            whole
        );
    }

    #[test]
    fn read_costs_agrees_with_prost() {
        let nodes: NodeSet = ["a", "b", "c"].into_iter().collect();
        let line = |node: &str, cost, reason: &str, freeable| NodeCost {
            node: node.into(),
            cost,
            reason: reason.into(),
            detail: "x".repeat(300),
            freeable,
            tie_break: 4,
        };
        let answer = EndpointCostResponse {
            node_and_cost: vec![
                line("a", i64::MAX, "", false),
                line("b", -7, "Full", true),
                line("zz", 1, "", false),
            ],
            resolution: 250,
            request_cost: Some(0),
        };
        let read = read_costs(&answer.encode_to_vec(), &nodes).unwrap();
        assert_eq!(read.resolution, 250);
        assert_eq!(read.request_cost, Some(0));
        let tie_break = |at| read.detail(at).map(|note| note.tie_break);
        assert_eq!((tie_break(0), tie_break(1)), (Some(4), Some(0)));
        assert_eq!(
            [0, 1, 2].map(|i| read.get(i)),
            [Some(i64::MAX), Some(-7), None]
        );
        let note = read.detail(1).unwrap();
        assert_eq!(
            (note.code, note.freeable, note.detail.len()),
            ("Full", true, 200)
        );
        assert_eq!(read.unknown_nodes, 1);
    }

    #[test]
    fn read_costs_sanitizes_details() {
        let nodes: NodeSet = ["a"].into_iter().collect();
        let answer = EndpointCostResponse {
            node_and_cost: vec![NodeCost {
                node: "a".into(),
                cost: -1,
                reason: "\u{1b}[2J".into(),
                detail: "\u{1b}[2J31 ms\nchosen\u{202e}".into(),
                ..NodeCost::default()
            }],
            ..EndpointCostResponse::default()
        };
        let read = read_costs(&answer.encode_to_vec(), &nodes).unwrap();
        let note = read.detail(0).unwrap();
        let expected = ("", "\u{fffd}[2J31 ms chosen\u{fffd}");
        assert_eq!((note.code, note.detail), expected);
    }

    proptest! {
        /// prost and this decoder accept the same bytes.
        #[test]
        fn garbage_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            fuzz_answer(&bytes);
        }
    }

    #[test]
    fn the_corpus_of_the_fuzz_target_is_harmless() {
        let corpus = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fuzz/corpus/provider_answer"
        );
        let mut replayed = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            fuzz_answer(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 4, "{corpus} has {replayed} files");
    }
}
