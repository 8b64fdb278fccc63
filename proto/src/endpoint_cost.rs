//! `EndpointCost` without a message per node: an answer has thousands, and kube-scheduler waits.

use prost::{
    DecodeError,
    bytes::{Buf, BufMut},
    encoding::{
        DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint,
        encoded_len_varint, key_len, skip_field,
    },
};

/// A malformed message.
#[derive(Debug, thiserror::Error)]
pub enum MalformedMessage {
    /// Invalid protobuf.
    #[error("{0}")]
    Wire(#[from] DecodeError),
    /// A length beyond the end.
    #[error("a field is longer than the message")]
    Truncated,
    /// Invalid UTF-8.
    #[error("a text is not UTF-8")]
    Text,
}

/// A borrowed `NodeCost`: the line of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCost<'a> {
    /// The node.
    pub node: &'a str,
    /// Lower is better; a negative cost makes the node unusable.
    pub cost: i64,
    /// The reason for a negative cost: at most 40 letters in CamelCase, such as `OverLimit`.
    pub code: &'a str,
    /// A text for people; may hold figures.
    pub detail: &'a str,
    /// The node could be used if pods on it were removed.
    pub freeable: bool,
    /// The part of the cost that only orders equally good nodes: it counts where all rules together
    /// call nodes equal, and where this rule decides alone.
    pub tie_break: i64,
}

impl<'a> NodeCost<'a> {
    /// Appends it to an `EndpointCostResponse`, encoded like prost.
    pub fn put(&self, out: &mut Vec<u8>) {
        let text = |tag, text: &str| match text.len() {
            0 => 0,
            len => key_len(tag) + encoded_len_varint(len as u64) + len,
        };
        let number = |tag, number: u64| match number {
            0 => 0,
            _ => key_len(tag) + encoded_len_varint(number),
        };
        let (cost, freeable) = (self.cost.cast_unsigned(), u64::from(self.freeable));
        let tie_break = self.tie_break.cast_unsigned();
        let len = text(1, self.node)
            + number(2, cost)
            + text(16, self.code)
            + text(17, self.detail)
            + number(18, freeable)
            + number(19, tie_break);
        encode_key(1, WireType::LengthDelimited, out);
        encode_varint(len as u64, out);
        put_text(1, self.node, out);
        put_number(2, cost, out);
        put_text(16, self.code, out);
        put_text(17, self.detail, out);
        put_number(18, freeable, out);
        put_number(19, tie_break, out);
    }

    /// Decodes a `NodeCost`.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn read(mut rest: &'a [u8]) -> Result<Self, MalformedMessage> {
        let mut line = Self::default();
        while rest.has_remaining() {
            match decode_key(&mut rest)? {
                (1, WireType::LengthDelimited) => line.node = text(take(&mut rest)?)?,
                (2, WireType::Varint) => line.cost = decode_varint(&mut rest)?.cast_signed(),
                (16, WireType::LengthDelimited) => line.code = text(take(&mut rest)?)?,
                (17, WireType::LengthDelimited) => line.detail = text(take(&mut rest)?)?,
                (18, WireType::Varint) => line.freeable = decode_varint(&mut rest)? != 0,
                (19, WireType::Varint) => line.tie_break = decode_varint(&mut rest)?.cast_signed(),
                (tag, wire) => skip_field(wire, tag, &mut rest, DecodeContext::default())?,
            }
        }
        Ok(line)
    }
}

/// The fields of an answer other than its lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostScale {
    /// Costs that differ by at most this are equally good; 0: every difference counts.
    pub resolution: i64,
    /// The cost of a node that just meets the request; `None` if the provider does not say.
    pub request_cost: Option<i64>,
}

/// Decodes an `EndpointCostResponse`; calls `each` for its lines in order.
///
/// # Errors
/// The bytes are malformed; `each` was called for the lines before the error.
pub fn read_answer<'a>(
    mut rest: &'a [u8],
    mut each: impl FnMut(NodeCost<'a>),
) -> Result<CostScale, MalformedMessage> {
    let mut scale = CostScale::default();
    while rest.has_remaining() {
        match decode_key(&mut rest)? {
            (1, WireType::LengthDelimited) => each(NodeCost::read(take(&mut rest)?)?),
            (19, WireType::Varint) => scale.resolution = decode_varint(&mut rest)?.cast_signed(),
            (22, WireType::Varint) => {
                scale.request_cost = Some(decode_varint(&mut rest)?.cast_signed());
            }
            (tag, wire) => skip_field(wire, tag, &mut rest, DecodeContext::default())?,
        }
    }
    Ok(scale)
}

/// Appends it to an `EndpointCostResponse`.
pub fn put_scale(scale: CostScale, out: &mut impl BufMut) {
    put_number(19, scale.resolution.cast_unsigned(), out);
    // 0 is sent too: its presence tells.
    if let Some(cost) = scale.request_cost {
        encode_key(22, WireType::Varint, out);
        encode_varint(cost.cast_unsigned(), out);
    }
}

/// Appends a node to the `eligibleNodes` of an `EndpointCostRequest`.
pub fn put_eligible_node(name: &str, out: &mut Vec<u8>) {
    encode_key(4, WireType::LengthDelimited, out);
    encode_varint(name.len() as u64, out);
    out.put_slice(name.as_bytes());
}

fn put_text(tag: u32, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        encode_key(tag, WireType::LengthDelimited, out);
        encode_varint(text.len() as u64, out);
        out.put_slice(text.as_bytes());
    }
}

fn put_number(tag: u32, number: u64, out: &mut impl BufMut) {
    if number != 0 {
        encode_key(tag, WireType::Varint, out);
        encode_varint(number, out);
    }
}

fn take<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], MalformedMessage> {
    let len = usize::try_from(decode_varint(rest)?).unwrap_or(usize::MAX);
    match rest.split_at_checked(len) {
        Some((field, after)) => {
            *rest = after;
            Ok(field)
        }
        None => Err(MalformedMessage::Truncated),
    }
}

fn text(bytes: &[u8]) -> Result<&str, MalformedMessage> {
    std::str::from_utf8(bytes).map_err(|_| MalformedMessage::Text)
}

#[cfg(test)]
#[path = "endpoint_cost_tests.rs"]
mod tests;
