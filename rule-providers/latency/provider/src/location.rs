use tautline_core::Snapshot;
use tautline_sdk::Reference;

/// Label of a node that names its zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// A node and its zone: a table has rows for either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location<'a> {
    pub node: &'a str,
    pub zone: Option<&'a str>,
}

/// The zone of an unknown node is `None`.
pub(crate) fn location<'a>(snapshot: &'a Snapshot, node: &'a str) -> Location<'a> {
    Location {
        node,
        zone: snapshot.node(node).and_then(|n| n.labels.get(ZONE)),
    }
}

/// The node of a target: a pod's node; for other kinds the target's name.
pub(crate) fn node_of(snapshot: &Snapshot, target: &Reference) -> Option<String> {
    match is_pod(target) {
        true => node_of_pod(snapshot, target),
        false => Some(target.name.clone()),
    }
}

/// The node that a pod is bound to; `None` for other kinds. Their authors choose the names
/// of other objects, so a name proves nothing about a node.
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
