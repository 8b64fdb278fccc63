//! `EndpointCost` on the wire without a string for each node: the question's
//! names are encoded once a round and shared by its rules, the answer's are read
//! in place.

use bytes::{Buf, BufMut, Bytes};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_varint, skip_field},
};
use tautline_core::{
    nodes::NodeSet,
    planning::{Costs, Note},
};
use tautline_proto::ruleprovider::EndpointCostResponse;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// The key of `EndpointCostRequest.eligibleNodes`: field 4, length-delimited.
const ELIGIBLE_NODES: u8 = 4 << 3 | 2;

/// The nodes of a question as they stand on the wire.
pub(crate) fn encode_nodes(nodes: &NodeSet) -> Bytes {
    let mut out = Vec::with_capacity(nodes.iter().map(|n| n.len() + 4).sum());
    for name in nodes.iter() {
        out.put_u8(ELIGIBLE_NODES);
        encode_varint(name.len() as u64, &mut out);
        out.put_slice(name.as_bytes());
    }
    out.into()
}

/// A question: all of it but the nodes, then the nodes. Fields of a protobuf
/// message may be concatenated.
#[derive(Clone, Debug)]
pub(crate) struct RawQuestion {
    pub head: Bytes,
    pub nodes: Bytes,
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct RawAnswer(Bytes);

/// An answer, read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub costs: Costs,
    pub valid_for_millis: i64,
}

/// Why an answer cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("{0}")]
    Wire(#[from] DecodeError),
    #[error("a field is longer than the message")]
    Truncated,
    #[error("a text is not UTF-8")]
    Text,
}

impl RawAnswer {
    /// Reads the answer against the nodes that were asked about.
    pub(crate) fn read(&self, nodes: &NodeSet) -> Result<Answer, Malformed> {
        let mut answer = Answer {
            costs: Costs::new(nodes.len()),
            valid_for_millis: 0,
        };
        let mut rest: &[u8] = &self.0;
        while rest.has_remaining() {
            match decode_key(&mut rest)? {
                (1, WireType::LengthDelimited) => {
                    read_node(bytes_field(&mut rest)?, nodes, &mut answer.costs)?;
                }
                (16, WireType::Varint) => {
                    answer.valid_for_millis = decode_varint(&mut rest)?.cast_signed();
                }
                (tag, wire) => skip_field(wire, tag, &mut rest, DecodeContext::default())?,
            }
        }
        Ok(answer)
    }
}

fn read_node(mut rest: &[u8], nodes: &NodeSet, costs: &mut Costs) -> Result<(), Malformed> {
    let (mut node, mut code, mut detail) = ("", "", "");
    let (mut cost, mut freeable) = (0, false);
    while rest.has_remaining() {
        match decode_key(&mut rest)? {
            (1, WireType::LengthDelimited) => node = text(bytes_field(&mut rest)?)?,
            (2, WireType::Varint) => cost = decode_varint(&mut rest)?.cast_signed(),
            (16, WireType::LengthDelimited) => code = text(bytes_field(&mut rest)?)?,
            (17, WireType::LengthDelimited) => detail = text(bytes_field(&mut rest)?)?,
            (18, WireType::Varint) => freeable = decode_varint(&mut rest)? != 0,
            (tag, wire) => skip_field(wire, tag, &mut rest, DecodeContext::default())?,
        }
    }
    let note = Note {
        code: code.into(),
        detail: clip(detail).into(),
        freeable,
    };
    costs.add(nodes, node, cost, note);
    Ok(())
}

/// Details are kept for explanations; a provider may not fill memory with them.
fn clip(detail: &str) -> &str {
    const MOST: usize = 200;
    match detail.char_indices().nth(MOST) {
        Some((end, _)) => &detail[..end],
        None => detail,
    }
}

fn bytes_field<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = usize::try_from(decode_varint(rest)?).unwrap_or(usize::MAX);
    match rest.split_at_checked(len) {
        Some((field, after)) => {
            *rest = after;
            Ok(field)
        }
        None => Err(Malformed::Truncated),
    }
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed::Text)
}

/// Reads bytes as an answer; what prost takes is no error here.
pub(crate) fn fuzz_answer(data: &[u8]) {
    let nodes: NodeSet = ["a", "node-1"].into_iter().collect();
    let read = RawAnswer(Bytes::copy_from_slice(data)).read(&nodes);
    if EndpointCostResponse::decode(data).is_ok() {
        assert!(read.is_ok(), "{read:?}");
    }
}

/// The codec of `EndpointCost`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CostCodec;

impl Codec for CostCodec {
    type Encode = RawQuestion;
    type Decode = RawAnswer;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }
    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for CostCodec {
    type Item = RawQuestion;
    type Error = Status;

    fn encode(&mut self, item: RawQuestion, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.reserve(item.head.len() + item.nodes.len());
        dst.put(item.head);
        dst.put(item.nodes);
        Ok(())
    }
}

impl Decoder for CostCodec {
    type Item = RawAnswer;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<RawAnswer>, Status> {
        let len = src.remaining();
        Ok(Some(RawAnswer(src.copy_to_bytes(len))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tautline_proto::ruleprovider::{EndpointCostRequest, NodeCost};

    #[test]
    fn a_question_is_what_prost_would_write() {
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
    fn an_answer_is_read_as_prost_would() {
        let nodes: NodeSet = ["a", "b", "c"].into_iter().collect();
        let line = |node: &str, cost, reason: &str, freeable| NodeCost {
            node: node.into(),
            cost,
            reason: reason.into(),
            detail: "x".repeat(300),
            freeable,
        };
        let answer = EndpointCostResponse {
            node_and_cost: vec![
                line("a", i64::MAX, "", false),
                line("b", -7, "Full", true),
                line("zz", 1, "", false),
            ],
            valid_for_millis: 1500,
        };
        let read = RawAnswer(answer.encode_to_vec().into())
            .read(&nodes)
            .unwrap();
        assert_eq!(read.valid_for_millis, 1500);
        assert_eq!(
            [0, 1, 2].map(|i| read.costs.get(i)),
            [Some(i64::MAX), Some(-7), None]
        );
        let note = read.costs.note(1).unwrap();
        assert_eq!(
            (&*note.code, note.freeable, note.detail.len()),
            ("Full", true, 200)
        );
        assert_eq!(read.costs.unknown_nodes, 1);
    }

    proptest! {
        /// Any bytes are an answer or an error, and what prost refuses is refused.
        #[test]
        fn garbage_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            fuzz_answer(&bytes);
        }
    }

    #[test]
    fn the_corpus_of_the_fuzz_target_is_harmless() {
        let corpus = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../fuzz/corpus/provider_answer"
        );
        let mut replayed = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            fuzz_answer(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 4, "{corpus} has {replayed} files");
    }
}
