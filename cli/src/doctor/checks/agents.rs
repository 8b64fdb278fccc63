//! A latency agent runs on each schedulable node.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, PodSpec, Taint};
use kube::ResourceExt;

use super::or_ok;
use crate::doctor::{
    cluster::State,
    finding::{Finding, counted, first_of},
    workload::{Role, Workload},
};

const MAX_NODES: usize = 5;

pub(super) fn check(state: &State<'_>) -> Vec<Finding> {
    let cluster = state.cluster;
    let (Some(nodes), Some(pods), Some(_)) = (&cluster.nodes, &cluster.pods, &cluster.daemon_sets)
    else {
        return Vec::new();
    };
    let Some(agents) = state.of(Role::LatencyAgent).next() else {
        return no_daemon_set(state);
    };
    let hosts: BTreeSet<&str> = agents
        .pods(pods)
        .filter_map(|p| p.spec.as_ref()?.node_name.as_deref())
        .collect();
    let eligible: Vec<&Node> = nodes
        .iter()
        .filter(|n| is_eligible(n, agents.spec))
        .collect();
    let without: Vec<String> = eligible
        .iter()
        .map(|n| n.name_any())
        .filter(|n| !hosts.contains(&**n))
        .collect();
    let mut findings = Vec::new();
    if !without.is_empty() {
        findings.push(missing(state, agents, &without, eligible.len()));
    }
    let text = "each schedulable node has a latency agent";
    or_ok(
        findings,
        Finding::ok("AgentsRun", counted(eligible.len(), "node"), text),
    )
}

fn no_daemon_set(state: &State<'_>) -> Vec<Finding> {
    if state.of(Role::Latency).next().is_none() {
        return Vec::new();
    }
    let text = "no DaemonSet runs the latency agent: nothing is measured, only tables count";
    let object = format!("latency agent, namespace {}", state.cluster.namespace);
    vec![Finding::warning(
        "AgentsMissing",
        object,
        text,
        state.reapply(),
    )]
}

fn missing(state: &State<'_>, agents: &Workload<'_>, without: &[String], nodes: usize) -> Finding {
    let text = format!(
        "no agent on {} of {}: {}; their round-trip times are not measured",
        without.len(),
        counted(nodes, "node"),
        first_of(without, MAX_NODES)
    );
    let fix = format!(
        "kubectl -n {} describe {}: its events, nodeSelector, tolerations and priority class",
        state.cluster.namespace,
        agents.kubectl()
    );
    Finding::problem("AgentsMissing", agents.object(), text, fix)
}

/// Whether the DaemonSet puts a pod on a node; one that is cordoned needs none. With node
/// affinity only its own controller knows.
fn is_eligible(node: &Node, spec: &PodSpec) -> bool {
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref());
    let node_spec = node.spec.clone().unwrap_or_default();
    let labels = node.metadata.labels.as_ref();
    let mut wanted = spec.node_selector.iter().flatten();
    let matches = wanted.all(|(k, v)| labels.and_then(|l| l.get(k)) == Some(v));
    let mut taints = node_spec.taints.iter().flatten();
    affinity.is_none()
        && node_spec.unschedulable != Some(true)
        && matches
        && taints.all(|t| t.effect == "PreferNoSchedule" || is_tolerated(t, spec))
}

fn is_tolerated(taint: &Taint, spec: &PodSpec) -> bool {
    // Those that every DaemonSet tolerates.
    let by_controller = taint.key.starts_with("node.kubernetes.io/");
    let mut tolerations = spec.tolerations.iter().flatten();
    by_controller
        || tolerations.any(|t| {
            let effect = t.effect.as_deref().unwrap_or_default();
            let key = t.key.as_deref().unwrap_or_default();
            let exists = t.operator.as_deref() == Some("Exists");
            (effect.is_empty() || effect == taint.effect)
                && ((key.is_empty() && exists) || key == taint.key)
                && (exists || t.value.as_deref() == taint.value.as_deref())
        })
}
