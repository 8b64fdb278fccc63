//! What a watch decodes of an object: as little as is kept of it. A large cluster
//! changes thousands of pods a second, and most of a pod's JSON (managed fields,
//! environments, probes, volumes, container statuses) says nothing of its place.

mod node;
mod pod;

use std::borrow::Cow;

use k8s_openapi::{
    api::{
        core::v1::{Node, Pod, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use kube::Resource;
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

use crate::constraint::{ConstraintPolicy, ConstraintPolicyOffer};

/// A kind that can be watched.
pub trait Watchable: Resource<DynamicType = ()> + Sized {
    /// What is decoded of it.
    type Decoded: DeserializeOwned + Into<Self>;
}

impl Watchable for Pod {
    type Decoded = pod::Decoded;
}
impl Watchable for Node {
    type Decoded = node::Decoded;
}
impl Watchable for Service {
    type Decoded = Self;
}
impl Watchable for EndpointSlice {
    type Decoded = Self;
}
impl Watchable for ConstraintPolicy {
    type Decoded = Self;
}
impl Watchable for ConstraintPolicyOffer {
    type Decoded = Self;
}

/// An object that a watch brought, or why it cannot be decoded: one that is
/// malformed must not end the watch on all others.
#[derive(Clone, Debug)]
pub enum Watched<K> {
    /// Its fields as far as they are decoded.
    Usable(K),
    /// It is not of its kind.
    Malformed {
        /// Which object it is.
        metadata: Box<ObjectMeta>,
        /// What is wrong.
        error: String,
    },
}

impl<'de, K: Watchable> Deserialize<'de> for Watched<K> {
    /// Of JSON text alone. The API server writes an event's type before its object,
    /// so that text is what there is.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        let error = match serde_json::from_str::<K::Decoded>(text) {
            Ok(decoded) => return Ok(Self::Usable(decoded.into())),
            Err(error) => error.to_string(),
        };
        #[derive(Deserialize)]
        struct Bare {
            metadata: Option<Metadata>,
        }
        let bare: Bare = serde_json::from_str(text).map_err(D::Error::custom)?;
        // A position in one long line helps nobody.
        let error = match error.split_once(" at line ") {
            Some((error, _)) => error.to_owned(),
            None => error,
        };
        Ok(Self::Malformed {
            metadata: Box::new(bare.metadata.unwrap_or_default().into()),
            error,
        })
    }
}

impl<K: Watchable> Resource for Watched<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Usable(object) => object.meta(),
            Self::Malformed { metadata, .. } => metadata,
        }
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Usable(object) => object.meta_mut(),
            Self::Malformed { metadata, .. } => metadata,
        }
    }
}

/// Metadata without managed fields.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl From<Metadata> for ObjectMeta {
    fn from(of: Metadata) -> Self {
        Self {
            name: of.name,
            namespace: of.namespace,
            uid: of.uid,
            resource_version: of.resource_version,
            creation_timestamp: of.creation_timestamp,
            deletion_timestamp: of.deletion_timestamp,
            labels: of.labels,
            annotations: of.annotations,
            finalizers: of.finalizers,
            owner_references: of.owner_references,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests;
