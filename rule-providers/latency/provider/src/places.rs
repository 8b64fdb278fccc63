//! Where things are: nodes, their zones, and the nodes of a binding's targets.

use tautline_core::Snapshot;
use tautline_sdk::Reference;

/// The label of the zone that a node is in.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// A place as a table may name it: the node, else its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub node: &'a str,
    pub zone: Option<&'a str>,
}

/// The place of a node; of one that is not known the zone is not either.
pub(crate) fn place<'a>(snapshot: &'a Snapshot, node: &'a str) -> Place<'a> {
    Place {
        node,
        zone: snapshot.node(node).and_then(|n| n.labels.get(ZONE)),
    }
}

/// The node of a target: a pod's own; endpoints and others go by their name.
pub(crate) fn node_of(snapshot: &Snapshot, target: &Reference) -> Option<String> {
    match is_pod(target) {
        true => node_of_pod(snapshot, target),
        false => Some(target.name.clone()),
    }
}

/// The node that a target is bound to; `None` if it is not a pod. The names of other
/// objects are their authors' choice, and so prove nothing about a node.
pub(crate) fn node_of_pod(snapshot: &Snapshot, target: &Reference) -> Option<String> {
    let pod = match is_pod(target) {
        true => snapshot.pod(&target.namespace, &target.name)?,
        false => return None,
    };
    pod.node.as_deref().map(str::to_owned)
}

pub(crate) fn is_pod(target: &Reference) -> bool {
    target.kind == "Pod"
}
