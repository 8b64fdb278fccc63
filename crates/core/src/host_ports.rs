//! Evaluates the host ports of a pod: two pods of one node must not take the same port.
//! <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#ports>

use crate::{
    index::Snapshot,
    model::{Node, Pod},
    pod_rules::{HostPort, PodRules},
};

/// The address that stands for all addresses of a node.
const ALL_ADDRESSES: &str = "0.0.0.0";

impl HostPort {
    /// Returns whether one node cannot give both ports. As in kube-scheduler, only the IPv4 form
    /// stands for all addresses.
    fn conflicts(&self, other: &Self) -> bool {
        let is_open = |port: &Self| port.address.is_empty() || *port.address == *ALL_ADDRESSES;
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || is_open(self) || is_open(other))
    }
}

/// Returns the first host port of the pod that another pod has taken on the node.
pub fn taken_port<'a>(
    snapshot: &Snapshot,
    pod: &Pod,
    rules: &'a PodRules,
    node: &Node,
) -> Option<&'a HostPort> {
    if rules.host_ports.is_empty() {
        return None;
    }
    let others = snapshot.pods_on(&node.name).iter();
    let others = others.filter(|p| p.name != pod.name || p.namespace != pod.namespace);
    let taken = others.filter_map(|p| p.rules.as_deref());
    let taken: Vec<&HostPort> = taken.flat_map(|rules| &rules.host_ports).collect();
    let is_taken = |wanted: &&HostPort| taken.iter().any(|port| port.conflicts(wanted));
    rules.host_ports.iter().find(is_taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_compare_port_protocol_and_address() {
        let port = |address: &str, protocol: &str, port| HostPort {
            address: address.into(),
            protocol: protocol.into(),
            port,
        };
        let http = port("", "TCP", 80);
        for (other, conflicts) in [
            (port("", "TCP", 80), true),
            (port("", "TCP", 81), false),
            (port("", "UDP", 80), false),
            (port("10.0.0.1", "TCP", 80), true),
            (port("0.0.0.0", "TCP", 80), true),
        ] {
            assert_eq!(http.conflicts(&other), conflicts, "{other:?}");
            assert_eq!(other.conflicts(&http), conflicts, "{other:?}");
        }
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|address| port(address, "TCP", 80));
        assert!(a.conflicts(&a) && !a.conflicts(&b));
        assert!(!port("::", "TCP", 80).conflicts(&a));
        assert!(port("0.0.0.0", "TCP", 80).conflicts(&a));
    }
}
