//! Converts the topology spread and the host ports of a pod.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, TopologySpreadConstraint};
use tautline_core::pod_rules::{HostPort, PodRules, SpreadConstraint};

/// Converts the topology spread of a pod without a node, and the host ports of any pod.
pub(super) fn pod_rules(pod: &Pod, is_bound: bool) -> Option<Box<PodRules>> {
    let spec = pod.spec.as_ref()?;
    let constraints = spec.topology_spread_constraints.iter().flatten();
    let hard = constraints.filter(|c| !is_bound && c.when_unsatisfiable == "DoNotSchedule");
    let spread: Vec<_> = hard.map(|c| spread_constraint(pod, c)).collect();
    let host_ports = host_ports(spec);
    let has_any = !spread.is_empty() || !host_ports.is_empty();
    has_any.then(|| Box::new(PodRules { spread, host_ports }))
}

fn spread_constraint(pod: &Pod, of: &TopologySpreadConstraint) -> SpreadConstraint {
    // The API server refuses a malformed selector; here it selects no pod.
    let selector = of.label_selector.as_ref();
    let mut selector = selector.and_then(|s| super::selector("labelSelector", s).ok());
    if let Some(selector) = &mut selector {
        let labels = pod.metadata.labels.as_ref();
        let keys = of.match_label_keys.iter().flatten();
        let own = keys.filter_map(|key| Some((key.clone(), labels?.get(key)?.clone())));
        selector.match_labels.extend(own);
    }
    SpreadConstraint {
        max_skew: of.max_skew.into(),
        topology_key: of.topology_key.as_str().into(),
        selector,
        min_domains: of
            .min_domains
            .map_or(1, |n| usize::try_from(n).unwrap_or(1)),
        honors_affinity: of.node_affinity_policy.as_deref() != Some("Ignore"),
        honors_taints: of.node_taints_policy.as_deref() == Some("Honor"),
    }
}

/// Returns the host ports of the containers that run as long as the pod. With `hostNetwork` each
/// port of a container is one, as the API server defaults it.
fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let is_sidecar = |c: &&Container| c.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    let ports = sidecars.chain(&spec.containers).flat_map(|c| &c.ports);
    let is_on_host = spec.host_network == Some(true);
    let taken = ports.flatten().filter_map(|port| {
        let on_host = port.host_port.filter(|number| *number != 0);
        let number = on_host.or(is_on_host.then_some(port.container_port))?;
        Some(HostPort {
            address: port.host_ip.as_deref().unwrap_or_default().into(),
            protocol: port.protocol.as_deref().unwrap_or("TCP").into(),
            port: u16::try_from(number).ok().filter(|number| *number > 0)?,
        })
    });
    taken.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(spec: Value) -> PodRules {
        let pod = json!({"metadata": {"name": "p", "namespace": "shop",
            "labels": {"app": "w", "hash": "1"}}, "spec": spec});
        let rules = pod_rules(&serde_json::from_value(pod).unwrap(), false);
        rules.map_or_else(PodRules::default, |rules| *rules)
    }

    fn spread(constraint: Value) -> Vec<SpreadConstraint> {
        let mut whole = json!({"maxSkew": 2, "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "w"}}});
        let fields = constraint.as_object().unwrap().clone();
        whole.as_object_mut().unwrap().extend(fields);
        rules(json!({"containers": [], "topologySpreadConstraints": [whole]})).spread
    }

    #[test]
    fn spread_has_kubernetes_defaults() {
        let [plain] = &spread(json!({}))[..] else {
            panic!("one constraint");
        };
        assert_eq!((plain.max_skew, plain.min_domains), (2, 1));
        assert!(plain.honors_affinity && !plain.honors_taints);
        let all = spread(json!({"minDomains": 3, "nodeAffinityPolicy": "Ignore",
            "nodeTaintsPolicy": "Honor", "matchLabelKeys": ["hash", "absent"]}));
        assert_eq!(all[0].min_domains, 3);
        assert!(!all[0].honors_affinity && all[0].honors_taints);
        let labels = &all[0].selector.as_ref().unwrap().match_labels;
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(*labels, [pair("app", "w"), pair("hash", "1")]);
        let none = spread(json!({"labelSelector": null, "matchLabelKeys": ["hash"]}));
        assert_eq!(none[0].selector, None);
        assert_eq!(spread(json!({"whenUnsatisfiable": "ScheduleAnyway"})), []);
    }

    #[test]
    fn host_ports_are_those_of_containers_that_stay() {
        let ports = |spec: Value| -> Vec<String> {
            let ports = rules(spec).host_ports.into_iter();
            ports.map(|p| format!("{}:{p}", p.address)).collect()
        };
        let container = |port: Value| json!({"name": "c", "ports": [port]});
        let web = || container(json!({"containerPort": 80, "hostPort": 8080}));
        assert_eq!(ports(json!({"containers": [web()]})), [":8080/TCP"]);
        let dns = container(
            json!({"containerPort": 53, "hostPort": 53, "protocol": "UDP",
            "hostIP": "10.0.0.1"}),
        );
        assert_eq!(ports(json!({"containers": [dns]})), ["10.0.0.1:53/UDP"]);
        let inner = || container(json!({"containerPort": 80}));
        assert_eq!(ports(json!({"containers": [inner()]})), [""; 0]);
        let on_host = json!({"hostNetwork": true, "containers": [inner()]});
        assert_eq!(ports(on_host), [":80/TCP"]);
        assert_eq!(
            ports(json!({"containers": [], "initContainers": [web()]})),
            [""; 0]
        );
        let mut sidecar = web();
        sidecar["restartPolicy"] = json!("Always");
        let with_sidecar = json!({"containers": [], "initContainers": [sidecar]});
        assert_eq!(ports(with_sidecar), [":8080/TCP"]);
    }
}
