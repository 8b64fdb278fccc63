//! Decodes pods and nodes in protobuf, which Kubernetes' own components read too, only as far as
//! planning needs: in a large cluster, thousands of pods change each second. The field numbers come
//! from the generated.proto files of `k8s.io/api` and `k8s.io/apimachinery`.

mod envelope;
mod node;
mod pod;

use std::collections::BTreeMap;

use bytes::Bytes;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::{
        api::resource::Quantity as ApiQuantity,
        apis::meta::v1::{ObjectMeta, OwnerReference as ApiOwner, Time as ApiTime},
    },
    jiff::Timestamp,
};
use kube::Resource;
use prost::Message;

pub use envelope::{Event, PROTOBUF, PROTOBUF_WATCH, Status, event, list, status};

/// A kind that is watched in protobuf.
pub trait Watchable: Resource<DynamicType = ()> + Sized + Send + 'static {
    /// The part of the object that planning needs.
    type Decoded: Message + Default + Into<Self>;
}

impl Watchable for Pod {
    type Decoded = pod::Pod;
}
impl Watchable for Node {
    type Decoded = node::Node;
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

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<OwnerReference>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
struct OwnerReference {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(bool, optional, tag = "6")]
    controller: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct Quantity {
    #[prost(string, tag = "1")]
    string: String,
}

type Amounts = BTreeMap<String, Quantity>;

impl From<Metadata> for ObjectMeta {
    fn from(of: Metadata) -> Self {
        let owner = |o: OwnerReference| ApiOwner {
            api_version: o.api_version,
            kind: o.kind,
            name: o.name,
            uid: o.uid,
            controller: o.controller,
            block_owner_deletion: None,
        };
        let time = |t: Time| ApiTime(Timestamp::from_second(t.seconds).unwrap_or_default());
        Self {
            name: some(of.name),
            namespace: some(of.namespace),
            uid: some(of.uid),
            resource_version: some(of.resource_version),
            creation_timestamp: of.creation_timestamp.map(time),
            deletion_timestamp: of.deletion_timestamp.map(time),
            labels: Some(of.labels),
            annotations: Some(of.annotations),
            owner_references: Some(of.owner_references.into_iter().map(owner).collect()),
            finalizers: Some(of.finalizers),
            ..Self::default()
        }
    }
}

/// Returns `None` for an empty text: Go writes an empty string where JSON leaves the field out.
fn some(text: String) -> Option<String> {
    Some(text).filter(|t| !t.is_empty())
}

fn amounts(of: Amounts) -> Option<BTreeMap<String, ApiQuantity>> {
    let amounts = of.into_iter().map(|(n, q)| (n, ApiQuantity(q.string)));
    Some(amounts.collect()).filter(|m: &BTreeMap<_, _>| !m.is_empty())
}

#[cfg(test)]
mod tests;
