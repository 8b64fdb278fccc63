//! Decodes pods and nodes in protobuf, which Kubernetes' own components read too, only as far as
//! planning needs: in a large cluster, thousands of pods change each second. The field numbers come
//! from the generated.proto files of `k8s.io/api` and `k8s.io/apimachinery`.

mod envelope;
pub(crate) mod messages;

use bytes::Bytes;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use prost::Message;

pub use envelope::{Event, PROTOBUF, PROTOBUF_WATCH, Status, event, list, status};
use messages::some;

/// A kind that is watched in protobuf.
pub trait Watchable: Resource<DynamicType = ()> + Sized + Send + 'static {
    /// The part of the object that planning needs.
    type Decoded: Message + Default + Into<Self>;
}

impl Watchable for Pod {
    type Decoded = messages::Pod;
}
impl Watchable for Node {
    type Decoded = messages::Node;
}

/// An object that cannot be decoded.
#[derive(Clone, Debug)]
pub struct MalformedObject {
    /// The object's name, namespace and version, as far as they are known.
    pub metadata: Box<ObjectMeta>,
    /// The decoding error.
    pub error: String,
}

/// Decodes an object.
///
/// # Errors
/// The bytes do not fit the kind. The caller must not end its watch for this.
pub fn object<K: Watchable>(raw: Bytes) -> Result<K, MalformedObject> {
    K::Decoded::decode(raw.clone())
        .map(Into::into)
        .map_err(|error| {
            let named = Named::decode(raw).unwrap_or_default();
            let metadata = named.metadata.unwrap_or_default();
            let metadata = Box::new(ObjectMeta {
                name: some(metadata.name),
                namespace: some(metadata.namespace),
                resource_version: some(metadata.resource_version),
                ..ObjectMeta::default()
            });
            MalformedObject {
                metadata,
                error: error.to_string(),
            }
        })
}

#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Name>,
}

#[derive(Clone, PartialEq, Message)]
struct Name {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "6")]
    resource_version: String,
}

#[cfg(test)]
mod tests;
