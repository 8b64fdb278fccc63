//! Kubernetes' hard rules for a pod on a node, for plans that kube-scheduler does not check.

use crate::{
    host_ports::taken_port,
    index::Snapshot,
    model::{Node, Pod, Taint, Toleration, TolerationValue},
    names::GATE_RESOURCE,
    pod_affinity::{AffinityConflict, PodAffinity},
    pod_rules::HostPort,
    topology_spread::{SpreadConflict, TopologySpread},
    volume_filter::{VolumeConflict, VolumeFilter},
};

/// The reason why a node cannot host a pod, in kube-scheduler's order and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnschedulableReason {
    /// The node is cordoned.
    Unschedulable,
    /// The pod does not tolerate the taint with this key.
    Taint(String),
    /// The node selector or the required node affinity does not match.
    NodeSelector,
    /// Another pod has taken this host port.
    HostPort(HostPort),
    /// The node has too little of this resource left.
    Insufficient(String),
    /// A volume of the pod excludes the node.
    Volume(VolumeConflict),
    /// Topology spread excludes the node.
    Spread(SpreadConflict),
    /// Required affinity or anti-affinity between pods excludes the node.
    PodAffinity(AffinityConflict),
}

impl std::fmt::Display for UnschedulableReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node is unschedulable"),
            Self::Taint(key) => write!(f, "untolerated taint {key}"),
            Self::NodeSelector => f.write_str("node affinity or selector does not match"),
            Self::HostPort(port) => write!(f, "no free host port {port}"),
            Self::Insufficient(resource) => write!(f, "insufficient {resource}"),
            Self::Volume(conflict) => conflict.fmt(f),
            Self::Spread(conflict) => conflict.fmt(f),
            Self::PodAffinity(conflict) => f.write_str(match conflict {
                AffinityConflict::Affinity => "pod affinity does not match",
                AffinityConflict::AntiAffinity => "pod anti-affinity does not match",
                AffinityConflict::OfExistingPod => "anti-affinity of an existing pod",
            }),
        }
    }
}

/// A filter of the nodes that can host one pod.
#[derive(Debug)]
pub struct NodeFilter<'a> {
    snapshot: &'a Snapshot,
    pod: &'a Pod,
    volumes: VolumeFilter<'a>,
    spread: TopologySpread<'a>,
    affinity: PodAffinity<'a>,
}

impl<'a> NodeFilter<'a> {
    /// Creates the filter of one pod, which need not be in the snapshot.
    pub fn new(snapshot: &'a Snapshot, pod: &'a Pod) -> Self {
        let spread = pod.rules.as_deref().map(|rules| {
            let affinity = |node: &Node| is_selected(pod, node);
            let taints = |node: &Node| untolerated_taint(pod, node).is_none();
            TopologySpread::new(snapshot, pod, rules, affinity, taints)
        });
        let volumes = snapshot
            .storage()
            .zip(snapshot.pod_volumes(&pod.namespace, &pod.name))
            .map(|(storage, volumes)| VolumeFilter::new(snapshot, storage, pod, volumes));
        Self {
            snapshot,
            pod,
            volumes: volumes.unwrap_or_default(),
            spread: spread.unwrap_or_default(),
            affinity: PodAffinity::new(snapshot, pod),
        }
    }

    /// Returns the first rule that excludes `node`, if any.
    pub fn reason(&self, node: &Node) -> Option<UnschedulableReason> {
        let Self { snapshot, pod, .. } = *self;
        let ports = || taken_port(snapshot, pod, pod.rules.as_deref()?, node).cloned();
        excluding_property(pod, node)
            .or_else(|| ports().map(UnschedulableReason::HostPort))
            .or_else(|| insufficient(snapshot, pod, node))
            .or_else(|| self.volumes.conflict(node).map(UnschedulableReason::Volume))
            .or_else(|| self.spread.conflict(node).map(UnschedulableReason::Spread))
            .or_else(|| {
                let conflict = self.affinity.conflict(node);
                conflict.map(UnschedulableReason::PodAffinity)
            })
    }
}

/// Returns the property of the node itself that excludes it, if any.
fn excluding_property(pod: &Pod, node: &Node) -> Option<UnschedulableReason> {
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        value: String::new(),
        effect: "NoSchedule".into(),
    };
    if node.unschedulable && !is_tolerated(&cordon, tolerations(pod)) {
        return Some(UnschedulableReason::Unschedulable);
    }
    if let Some(taint) = untolerated_taint(pod, node) {
        return Some(UnschedulableReason::Taint(taint.key.clone()));
    }
    (!is_selected(pod, node)).then_some(UnschedulableReason::NodeSelector)
}

fn tolerations(pod: &Pod) -> &[Toleration] {
    let placement = pod.placement.as_deref();
    placement.map_or(&[], |p| &p.tolerations)
}

/// Returns the first taint that keeps the pod from the node.
fn untolerated_taint<'n>(pod: &Pod, node: &'n Node) -> Option<&'n Taint> {
    let hard = |t: &&Taint| t.effect == "NoSchedule" || t.effect == "NoExecute";
    let mut hard = node.taints.iter().filter(hard);
    hard.find(|t| !is_tolerated(t, tolerations(pod)))
}

/// Returns whether the pod's node selector and required node affinity match the node.
fn is_selected(pod: &Pod, node: &Node) -> bool {
    pod.placement.as_deref().is_none_or(|placement| {
        let mut labels = placement.node_selector.iter();
        let affinity = &placement.affinity;
        labels.all(|(k, v)| node.labels.get(k) == Some(v.as_str()))
            && (affinity.is_empty() || affinity.iter().any(|t| t.matches(node)))
    })
}

fn insufficient(snapshot: &Snapshot, pod: &Pod, node: &Node) -> Option<UnschedulableReason> {
    let others: Vec<_> = snapshot
        .pods_on(&node.name)
        .iter()
        .filter(|p| p.name != pod.name || p.namespace != pod.namespace)
        .collect();
    // A node that does not report this resource takes no pods.
    let pods = node.allocatable.milli("pods");
    if (others.len() as i64 + 1).saturating_mul(1000) > pods {
        return Some(UnschedulableReason::Insufficient("pods".into()));
    }
    pod.requests
        .iter()
        .filter(|(resource, requested)| *requested > 0 && *resource != GATE_RESOURCE)
        .find_map(|(resource, requested)| {
            let offered = node.allocatable.milli(resource);
            if offered == 0 && snapshot.is_served_by_devices(resource) {
                return None;
            }
            let used: i64 = others
                .iter()
                .fold(0, |sum, p| sum.saturating_add(p.requests.milli(resource)));
            (used.saturating_add(requested) > offered)
                .then(|| UnschedulableReason::Insufficient(resource.to_owned()))
        })
}

/// Returns whether one of the tolerations matches the taint.
pub fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|t| {
        t.effect.as_ref().is_none_or(|e| *e == taint.effect)
            && t.key.as_ref().is_none_or(|k| *k == taint.key)
            && match &t.value {
                TolerationValue::Any => true,
                TolerationValue::Equal(value) => *value == taint.value,
                TolerationValue::Below(bound) => integer(&taint.value).is_some_and(|v| v < *bound),
                TolerationValue::Above(bound) => integer(&taint.value).is_some_and(|v| v > *bound),
            }
    })
}

/// Parses the integer value of a taint or a toleration. Like Kubernetes, it accepts only the
/// canonical form.
pub fn integer(text: &str) -> Option<i64> {
    text.parse().ok().filter(|n: &i64| n.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        index::{Index, Object},
        model::{AffinityTerm, DeviceClass, NodeConstraints, Resources},
        selector::Expression,
    };

    fn node() -> Node {
        Node {
            name: "n".into(),
            labels: [("zone", "a"), ("gen", "7")].into_iter().collect(),
            allocatable: [("cpu", 4_000), ("pods", 2_000)].into_iter().collect(),
            ..Node::default()
        }
    }

    fn pod(name: &str, cpu: i64, placement: NodeConstraints) -> Pod {
        Pod {
            namespace: "ns".into(),
            name: name.into(),
            requests: [("cpu", cpu)].into_iter().collect::<Resources>(),
            placement: Some(Box::new(placement)),
            ..Pod::default()
        }
    }

    fn reason_of(index: &Index, pod: &Pod, node: &Node) -> Option<String> {
        let snapshot = index.snapshot();
        let reason = NodeFilter::new(&snapshot, pod).reason(node);
        reason.map(|reason| reason.to_string())
    }

    fn check(node: &Node, pod: &Pod) -> Option<String> {
        let mut index = Index::default();
        let used = Pod {
            node: Some("n".into()),
            ..self::pod("there", 1_000, NodeConstraints::default())
        };
        index.apply(Object::Pod(used));
        reason_of(&index, pod, node)
    }

    #[test]
    fn devices_of_a_class_serve_what_a_node_does_not_offer() {
        let pod = Pod {
            requests: [("nvidia.com/gpu", 1000)].into_iter().collect(),
            ..Pod::default()
        };
        let mut index = Index::default();
        let reason = |index: &Index, node: &Node| reason_of(index, &pod, node);
        assert_eq!(
            reason(&index, &node()).unwrap(),
            "insufficient nvidia.com/gpu"
        );
        index.apply(Object::DeviceClass(DeviceClass {
            name: "gpu.nvidia.com".into(),
            extended_resource: Some("nvidia.com/gpu".into()),
        }));
        assert_eq!(reason(&index, &node()), None);
    }

    #[test]
    fn insufficient_counts_pods_on_the_node() {
        assert_eq!(
            check(&node(), &pod("p", 3_000, NodeConstraints::default())),
            None
        );
        let too_much = pod("p", 3_001, NodeConstraints::default());
        assert_eq!(check(&node(), &too_much).unwrap(), "insufficient cpu");
        let full = Node {
            allocatable: [("cpu", 9_000), ("pods", 1_000)].into_iter().collect(),
            ..node()
        };
        assert_eq!(
            check(&full, &pod("p", 1, NodeConstraints::default())).unwrap(),
            "insufficient pods"
        );
        for allocatable in [vec![("cpu", 9_000)], vec![("cpu", 9_000), ("pods", 0)]] {
            let none = Node {
                allocatable: allocatable.into_iter().collect(),
                ..node()
            };
            let reason = check(&none, &pod("p", 0, NodeConstraints::default()));
            assert_eq!(reason.unwrap(), "insufficient pods");
        }
        let gated = Pod {
            requests: [("cpu", 10), (GATE_RESOURCE, 1_000)].into_iter().collect(),
            ..pod("p", 0, NodeConstraints::default())
        };
        assert_eq!(check(&node(), &gated), None);
    }

    #[test]
    fn unschedulable_reason_checks_taints_and_cordon() {
        let taint = Taint {
            key: "gpu".into(),
            value: "yes".into(),
            effect: "NoSchedule".into(),
        };
        let tainted = Node {
            taints: vec![taint],
            unschedulable: false,
            ..node()
        };
        assert_eq!(
            check(&tainted, &pod("p", 1, NodeConstraints::default())).unwrap(),
            "untolerated taint gpu"
        );
        let by_value = Toleration {
            key: Some("gpu".into()),
            value: TolerationValue::Equal("yes".into()),
            effect: None,
        };
        let tolerant = NodeConstraints {
            tolerations: vec![by_value],
            ..NodeConstraints::default()
        };
        assert_eq!(check(&tainted, &pod("p", 1, tolerant.clone())), None);
        let tolerates = |value, taint: &str| {
            let tolerations = [Toleration {
                value,
                ..Toleration::default()
            }];
            let taint = Taint {
                value: taint.into(),
                ..Taint::default()
            };
            is_tolerated(&taint, &tolerations)
        };
        for (value, taint, tolerated) in [
            (TolerationValue::Below(100), "99", true),
            (TolerationValue::Below(100), "100", false),
            (TolerationValue::Above(100), "101", true),
            (TolerationValue::Above(100), "100", false),
            (TolerationValue::Above(-1), "007", false),
            (TolerationValue::Above(-1), "x", false),
        ] {
            assert_eq!(
                tolerates(value.clone(), taint),
                tolerated,
                "{value:?} {taint}"
            );
        }
        let cordoned = Node {
            unschedulable: true,
            ..node()
        };
        assert!(check(&cordoned, &pod("p", 1, tolerant)).is_some());
        let all = NodeConstraints {
            tolerations: vec![Toleration::default()],
            ..NodeConstraints::default()
        };
        assert_eq!(check(&cordoned, &pod("p", 1, all)), None);
    }

    #[test]
    fn unschedulable_reason_checks_selector_and_affinity() {
        let term = |labels: &[(&str, &str, &[&str])]| AffinityTerm {
            labels: labels
                .iter()
                .map(|(k, op, v)| {
                    Expression::new(k, op, v.iter().map(|s| (*s).to_owned()).collect()).unwrap()
                })
                .collect(),
            ..AffinityTerm::default()
        };
        let with = |affinity: Vec<AffinityTerm>| {
            check(
                &node(),
                &pod(
                    "p",
                    1,
                    NodeConstraints {
                        affinity,
                        ..NodeConstraints::default()
                    },
                ),
            )
        };
        assert!(with(vec![term(&[("zone", "In", &["b"])])]).is_some());
        assert!(with(vec![term(&[])]).is_some());
        assert_eq!(
            with(vec![
                term(&[("zone", "In", &["b"])]),
                term(&[("zone", "Exists", &[])])
            ]),
            None
        );
        let gen_above = |bound| AffinityTerm {
            compare: vec![("gen".into(), true, bound)],
            ..AffinityTerm::default()
        };
        assert_eq!(with(vec![gen_above(6)]), None);
        assert!(with(vec![gen_above(7)]).is_some());
        let named = AffinityTerm {
            names: vec![(true, vec!["n".into()])],
            ..AffinityTerm::default()
        };
        assert_eq!(with(vec![named]), None);
    }
}
