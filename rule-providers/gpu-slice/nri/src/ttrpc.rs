//! Messages of ttrpc: length and stream, both u32 big-endian, type, flags, then the body.
//! <https://github.com/containerd/ttrpc/blob/main/PROTOCOL.md>

use crate::{error::Error, mux::be};

pub(crate) const HEADER: usize = 10;
pub(crate) const LONGEST: usize = 4 << 20;
const KEPT: usize = 64 << 10;

pub(crate) const REQUEST: u8 = 1;
pub(crate) const RESPONSE: u8 = 2;

/// A call.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Request {
    #[prost(string, tag = "1")]
    pub(crate) service: String,
    #[prost(string, tag = "2")]
    pub(crate) method: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) payload: Vec<u8>,
    /// Time for the answer; 0 is no bound.
    #[prost(int64, tag = "4")]
    pub(crate) timeout_nano: i64,
}

/// The answer to a call.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Response {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) payload: Vec<u8>,
}

/// gRPC's status.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

/// Codes of [`Status`].
pub(crate) mod code {
    pub(crate) const UNKNOWN: i32 = 2;
    pub(crate) const INVALID_ARGUMENT: i32 = 3;
    pub(crate) const DEADLINE_EXCEEDED: i32 = 4;
    pub(crate) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(crate) const UNIMPLEMENTED: i32 = 12;
    pub(crate) const INTERNAL: i32 = 13;
}

impl Response {
    pub(crate) fn ok(payload: Vec<u8>) -> Self {
        let status = None;
        Self { status, payload }
    }

    pub(crate) fn error(code: i32, message: impl Into<String>) -> Self {
        let message = message.into();
        let status = Some(Status { code, message });
        let payload = Vec::new();
        Self { status, payload }
    }
}

/// A message as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) stream: u32,
    pub(crate) kind: u8,
    pub(crate) body: Vec<u8>,
}

/// Joins the pieces of one connection to messages.
#[derive(Debug, Default)]
pub(crate) struct Decoder(Vec<u8>);

impl Decoder {
    /// Adds a piece; [`Decoder::next`] has to be called until it returns `None` after it.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn next(&mut self) -> Result<Option<Raw>, Error> {
        if self.0.len() < HEADER {
            return Ok(None);
        }
        let length = be(&self.0) as usize;
        if length > LONGEST {
            return Err(Error::Protocol(format!(
                "a message of {length} bytes; the longest is {LONGEST}"
            )));
        }
        let end = HEADER + length;
        if self.0.len() < end {
            return Ok(None);
        }
        let rest = self.0.split_off(end);
        let whole = std::mem::replace(&mut self.0, rest);
        if self.0.is_empty() && self.0.capacity() > KEPT {
            self.0 = Vec::new();
        }
        Ok(Some(Raw {
            stream: be(&whole[4..]),
            kind: whole[8],
            body: whole[HEADER..].to_vec(),
        }))
    }
}

/// A request or response as it is sent.
pub(crate) fn encode(stream: u32, kind: u8, body: &impl prost::Message) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + body.encoded_len());
    out.extend_from_slice(&(body.encoded_len() as u32).to_be_bytes());
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&[kind, 0]);
    out.extend_from_slice(&body.encode_to_vec());
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    fn decode(stream: &[u8], step: usize) -> Result<Vec<Raw>, Error> {
        let mut decoder = Decoder::default();
        let mut read = Vec::new();
        for bytes in stream.chunks(step.max(1)) {
            decoder.feed(bytes);
            while let Some(message) = decoder.next()? {
                read.push(message);
            }
        }
        Ok(read)
    }

    #[test]
    fn oversize_messages_are_refused_by_their_header() {
        let mut message = encode(1, REQUEST, &Request::default());
        message[..4].copy_from_slice(&(LONGEST as u32 + 1).to_be_bytes());
        let error = decode(&message, 4).unwrap_err().to_string();
        assert!(error.contains("a message of 4194305 bytes"), "{error}");
    }

    proptest! {
        #[test]
        fn messages_survive_any_split(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..6),
            step in 1usize..4000,
        ) {
            let sent: Vec<Request> = payloads.into_iter().map(|payload| Request {
                service: "s".into(), method: "m".into(), payload, timeout_nano: -1,
            }).collect();
            let stream: Vec<u8> = sent.iter().zip(1..).flat_map(|(r, id)| encode(id, REQUEST, r)).collect();
            let read = decode(&stream, step).unwrap();
            let requests: Vec<Request> = read.iter().map(|raw| Request::decode(&raw.body[..]).unwrap()).collect();
            prop_assert_eq!(requests, sent);
            prop_assert!(read.iter().zip(1..).all(|(raw, id)| raw.stream == id && raw.kind == REQUEST));
        }

        #[test]
        fn garbage_never_panics(stream in prop::collection::vec(any::<u8>(), 0..300), step in 1usize..50) {
            _ = decode(&stream, step);
        }
    }
}
