use tautline_core::Snapshot;
use tautline_sdk::Reference;

use crate::network::outside::host_and_port;

/// The label that names the zone of a node.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// A node and its zone; a table has rows for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location<'a> {
    pub node: &'a str,
    pub zone: Option<&'a str>,
}

/// Returns the location of a node; the zone of an unknown node is `None`.
pub(crate) fn location<'a>(snapshot: &'a Snapshot, node: &'a str) -> Location<'a> {
    Location {
        node,
        zone: snapshot.node(node).and_then(|n| n.labels.get(ZONE)),
    }
}

/// Returns the location of a place that is a node or an address outside the cluster. Rows for
/// `name`, the [`row_name`] of the object there, apply to all of its addresses, as those of a zone.
pub(crate) fn location_of_place<'a>(of_node: Location<'a>, name: Option<&'a str>) -> Location<'a> {
    let is_outside = host_and_port(of_node.node).is_some();
    Location {
        zone: of_node.zone.or_else(|| name.filter(|_| is_outside)),
        ..of_node
    }
}

/// Returns the name by which tables know the addresses of an object: the cluster's name for an object
/// of another cluster, the Service's name otherwise; `None` for a pod of this cluster.
pub(crate) fn row_name(target: &Reference) -> Option<&str> {
    match target.cluster.as_str() {
        "" if is_pod(target) => None,
        "" => Some(&target.name),
        cluster => Some(cluster),
    }
}

/// Returns the node of a target: the node of a pod, or the name of an object of another kind.
pub(crate) fn node_of(snapshot: &Snapshot, target: &Reference) -> Option<String> {
    if is_pod(target) {
        node_of_pod(snapshot, target)
    } else {
        Some(target.name.clone())
    }
}

/// Returns the node that a pod is bound to, and `None` for other kinds: authors choose the names of
/// their objects, so a name proves nothing about a node.
pub(crate) fn node_of_pod(snapshot: &Snapshot, target: &Reference) -> Option<String> {
    let pod = snapshot.pod_of(target)?;
    pod.node.as_deref().map(str::to_owned)
}

/// Returns each two items of a list, in its order.
pub(crate) fn each_two<T>(list: &[T]) -> impl Iterator<Item = (&T, &T)> {
    let all = list.iter().enumerate();
    all.flat_map(move |(i, a)| list[i + 1..].iter().map(move |b| (a, b)))
}

/// Returns whether the target is a pod, of this cluster or of another one.
pub(crate) fn is_pod(target: &Reference) -> bool {
    target.kind == "Pod"
}
