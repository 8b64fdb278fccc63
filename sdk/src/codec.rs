//! The codec of `EndpointCost`, which needs no intermediate message.

use prost::{
    Message,
    bytes::{Buf, BufMut},
};
use tautline_proto::{
    endpoint_cost::{MalformedMessage, read_eligible_nodes},
    ruleprovider::EndpointCostRequest,
};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use crate::{CostAnswer, CostRequest};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CostCodec;

impl Codec for CostCodec {
    type Encode = CostAnswer;
    type Decode = CostRequest;
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
    type Item = CostAnswer;
    type Error = Status;

    fn encode(&mut self, answer: CostAnswer, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let bytes = answer.into_wire();
        out.reserve(bytes.len());
        out.put_slice(&bytes);
        Ok(())
    }
}

impl Decoder for CostCodec {
    type Item = CostRequest;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<CostRequest>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        // prost's codec returns the same status.
        let question = question(&bytes).map_err(|e| Status::internal(e.to_string()))?;
        Ok(Some(question))
    }
}

fn question(bytes: &[u8]) -> Result<CostRequest, MalformedMessage> {
    let mut nodes = Vec::new();
    let rest = read_eligible_nodes(bytes, |node| nodes.push(node.to_owned()))?;
    Ok(CostRequest {
        eligible_nodes: nodes,
        ..EndpointCostRequest::decode(&*rest)?.into()
    })
}
