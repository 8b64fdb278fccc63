//! The objects of the index, and their keys.

use crate::{
    model::{
        DeviceClass, EndpointSlice, Namespace, Node, Offer, Pod, Policy, Service, WatchedObject,
        key,
    },
    remote::RemotePods,
    volumes::{PodVolumes, Storage},
};

/// An object of the index.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A pod.
    Pod(Pod),
    /// A node.
    Node(Node),
    /// A Service.
    Service(Service),
    /// An EndpointSlice.
    EndpointSlice(EndpointSlice),
    /// A ConstraintPolicy.
    Policy(Policy),
    /// A ConstraintPolicyOffer.
    Offer(Offer),
    /// An object of another kind that a target of an offer names.
    Dynamic(WatchedObject),
    /// A namespace.
    Namespace(Namespace),
    /// A DeviceClass.
    DeviceClass(DeviceClass),
    /// The claims of a pod's volumes, which no watch reads.
    PodVolumes(PodVolumes),
    /// All storage objects; they replace earlier ones.
    Storage(Box<Storage>),
    /// The pods of one namespace of another cluster.
    RemotePods(RemotePods),
}

/// The kinds of [`Object`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Pods.
    Pod,
    /// Nodes.
    Node,
    /// Services.
    Service,
    /// EndpointSlices.
    EndpointSlice,
    /// ConstraintPolicies.
    Policy,
    /// ConstraintPolicyOffers.
    Offer,
    /// Objects of other kinds that targets of offers name.
    Dynamic,
    /// Namespaces.
    Namespace,
    /// DeviceClasses.
    DeviceClass,
    /// The claims of pods' volumes, which no watch reads.
    PodVolumes,
    /// All storage objects, which no watch reads.
    Storage,
    /// The pods of other clusters.
    RemotePods,
}

impl Kind {
    /// The number of kinds.
    pub const COUNT: usize = Self::RemotePods as usize + 1;
}

impl Object {
    /// Returns the kind of the object.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Pod(_) => Kind::Pod,
            Self::Node(_) => Kind::Node,
            Self::Service(_) => Kind::Service,
            Self::EndpointSlice(_) => Kind::EndpointSlice,
            Self::Policy(_) => Kind::Policy,
            Self::Offer(_) => Kind::Offer,
            Self::Dynamic(_) => Kind::Dynamic,
            Self::Namespace(_) => Kind::Namespace,
            Self::DeviceClass(_) => Kind::DeviceClass,
            Self::PodVolumes(_) => Kind::PodVolumes,
            Self::Storage(_) => Kind::Storage,
            Self::RemotePods(_) => Kind::RemotePods,
        }
    }

    /// Returns the key for [`Index::delete`](super::Index::delete): `namespace/name`, after `apiVersion:Kind:` for a
    /// dynamic object, the name alone of a node, a namespace or a DeviceClass, or
    /// `cluster/namespace` of the pods of another cluster.
    pub fn key(&self) -> String {
        match self {
            Self::Pod(o) => key(&o.namespace, &o.name),
            Self::Node(o) => o.name.to_string(),
            Self::Service(o) => key(&o.namespace, &o.name),
            Self::EndpointSlice(o) => key(&o.namespace, &o.name),
            Self::Policy(o) => key(&o.namespace, &o.name),
            Self::Offer(o) => key(&o.namespace, &o.name),
            Self::Dynamic(o) => dynamic_key(o),
            Self::Namespace(o) => o.name.to_string(),
            Self::DeviceClass(o) => o.name.to_string(),
            Self::PodVolumes(o) => key(&o.namespace, &o.name),
            Self::Storage(_) => String::new(),
            Self::RemotePods(o) => o.scope.key(),
        }
    }
}

pub(super) fn dynamic_key(o: &WatchedObject) -> String {
    [
        &*o.api_version,
        ":",
        &o.kind,
        ":",
        &o.namespace,
        "/",
        &o.name,
    ]
    .concat()
}
