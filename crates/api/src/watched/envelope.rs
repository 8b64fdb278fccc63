//! Opens the envelopes of protobuf objects, which have four magic bytes and the type. In a watch,
//! the length of each event precedes it.

use bytes::{Buf, Bytes, BytesMut};
use prost::{DecodeError, Message};

/// The media type of a response.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The media type of a watch.
pub const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";

const MAGIC: &[u8] = b"k8s\0";
/// The maximum size of an event. It is more than ten times etcd's limit for objects.
const MAX_EVENT_BYTES: usize = 64 << 20;

/// A malformed envelope: nothing after it can be read.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    #[error("an object does not begin as protobuf of Kubernetes does; is a proxy in between?")]
    NoMagic,
    #[error("an event of {0} bytes; the longest are of {MAX_EVENT_BYTES}")]
    TooLong(usize),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// An event of a watch, with the object's bytes.
#[derive(Clone, Debug)]
pub enum Event {
    /// An object was added or modified.
    Applied(Bytes),
    /// An object was deleted; the bytes have its last state.
    Deleted(Bytes),
    /// All changes up to this version were sent.
    Bookmark(Bytes),
    /// The watch ends with this error.
    Error(Status),
}

/// One page of a list, with the bytes of each object.
#[derive(Clone, PartialEq, Message)]
pub struct List {
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub items: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListMeta {
    #[prost(string, tag = "2")]
    pub resource_version: String,
    /// The token of the next page; empty on the last page.
    #[prost(string, tag = "3")]
    pub continue_: String,
}

/// An error of the API server.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// The message for people.
    #[prost(string, tag = "3")]
    pub message: String,
    /// The reason for programs, one word.
    #[prost(string, tag = "4")]
    pub reason: String,
    /// The HTTP status code.
    #[prost(int32, tag = "6")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct WatchEvent {
    #[prost(string, tag = "1")]
    type_: String,
    #[prost(message, required, tag = "2")]
    object: RawExtension,
}

#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    raw: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// Decodes a page of a list.
pub fn list(body: Bytes) -> Result<List, EnvelopeError> {
    Ok(List::decode(opened(body)?)?)
}

/// Decodes the API server's answer to a request that failed.
pub fn status(body: Bytes) -> Result<Status, EnvelopeError> {
    Ok(Status::decode(opened(body)?)?)
}

/// Takes the next event from the received bytes of a watch. Returns `None` if it is not complete
/// yet.
pub fn event(buffer: &mut BytesMut) -> Result<Option<Event>, EnvelopeError> {
    let Some(length) = buffer.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_EVENT_BYTES {
        return Err(EnvelopeError::TooLong(length));
    }
    if buffer.len() < 4 + length {
        return Ok(None);
    }
    buffer.advance(4);
    let event = WatchEvent::decode(buffer.split_to(length).freeze())?;
    let object = opened(event.object.raw)?;
    Ok(Some(match &*event.type_ {
        "DELETED" => Event::Deleted(object),
        "BOOKMARK" => Event::Bookmark(object),
        "ERROR" => Event::Error(Status::decode(object)?),
        _ => Event::Applied(object),
    }))
}

pub(super) fn opened(mut body: Bytes) -> Result<Bytes, EnvelopeError> {
    if !body.starts_with(MAGIC) {
        return Err(EnvelopeError::NoMagic);
    }
    body.advance(MAGIC.len());
    Ok(Unknown::decode(body)?.raw)
}

#[cfg(test)]
mod tests;
