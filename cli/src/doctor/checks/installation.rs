//! Checks the components: their pods, versions and rights, their Leases and the latency agents.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, Pod, PodSpec},
    },
    jiff::{SignedDuration, Timestamp},
};
use kube::ResourceExt;
use tautline_api::convert;
use tautline_core::{model::Taint, names::CONTROLLER, node_filter::is_tolerated};

use crate::{
    age,
    doctor::{
        cluster::State,
        finding::{Fault, Finding, counted, first_of, passed, problem, warning},
        workload::{
            Role::{self, Admission, Controller, Extender},
            Workload, condition,
        },
    },
};

/// The maximum number of pods that one finding names.
const MAX_PODS: usize = 3;
/// The maximum number of nodes that one finding names.
const MAX_NODES: usize = 5;
/// The maximum number of rights that one finding names.
const MAX_RIGHTS: usize = 4;
/// The number of a Lease's durations without renewal after which no replica leads. It is above one
/// because clocks differ.
const MAX_MISSED_TERMS: i64 = 3;
/// The components that must run, and the reason; the admission server only if a webhook
/// configuration exists.
const REQUIRED: [(Role, &str); 3] = [
    (Extender, "kube-scheduler calls it to place governed pods"),
    (Controller, "it creates and evaluates bindings"),
    (Admission, "webhook configurations name it"),
];

/// Checks that the components are there, and that their pods are ready.
pub(super) fn components(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let cluster = state.cluster;
    cluster.deployments.as_ref()?;
    let is_called = cluster.webhooks.iter().flatten().next().is_some();
    for (role, why) in REQUIRED {
        if state.of(role).next().is_none() && (role != Admission || is_called) {
            let object = format!("{}, namespace {}", role.title(), cluster.namespace);
            let text = format!("no Deployment of the namespace runs it; {why}");
            out.push(problem("ComponentMissing", object, text, state.reapply()));
        }
    }
    let (pods, workloads) = (cluster.pods.as_ref()?, state.workloads.iter());
    out.extend(workloads.filter_map(|w| readiness(w, pods, &cluster.namespace)));
    let object = counted(state.workloads.len(), "component");
    Some(passed("ComponentsReady", object, "every pod is ready"))
}

fn readiness(workload: &Workload<'_>, pods: &[Pod], namespace: &str) -> Option<Finding> {
    let (object, name) = (workload.object(), workload.kubectl());
    if workload.desired == Some(0) {
        let fix = format!("kubectl -n {namespace} scale {name} --replicas=2");
        let text = format!("has 0 replicas: no {} runs", workload.role.title());
        return Some(problem("ComponentNotReady", object, text, fix));
    }
    let own: Vec<&Pod> = workload.pods(pods).filter(|p| !is_finished(p)).collect();
    let unready: Vec<&Pod> = own.iter().copied().filter(|p| !is_ready(p)).collect();
    let desired = workload.desired.unwrap_or(own.len());
    let ready = own.len() - unready.len();
    if ready >= desired && unready.is_empty() {
        return None;
    }
    let faults = unready.iter().take(MAX_PODS).map(|p| fault(p, namespace));
    let (mut texts, fixes): (Vec<String>, Vec<String>) = faults.unzip();
    texts.extend(workload.failure.map(str::to_owned));
    if texts.is_empty() {
        let absent = desired.saturating_sub(own.len());
        texts.push(format!("{} not created", counted(absent, "pod")));
    }
    let text = format!("{ready} of {desired} pods ready; {}", texts.join("; "));
    let describe = || format!("kubectl -n {namespace} describe {name}");
    let fix = fixes.into_iter().next().unwrap_or_else(describe);
    // The ready pods do the work.
    Some(problem("ComponentNotReady", object, text, fix).warning_if(ready > 0))
}

/// Returns the reason why a pod is not ready, and the fix.
fn fault(pod: &Pod, namespace: &str) -> (String, String) {
    let name = pod.name_any();
    let describe = format!("kubectl -n {namespace} describe pod {name}");
    let scheduled = condition(pod, "PodScheduled");
    let (why, fix) = if let Some(no) = scheduled.filter(|c| c.status == "False") {
        let message = no.message.as_deref().unwrap_or_default();
        (format!("Pending: {message}"), describe)
    } else if let Some((reason, message)) = waiting(pod) {
        let fix = match reason {
            "ImagePullBackOff" | "ErrImagePull" | "InvalidImageName" => format!(
                "correct the image (images of deploy/base/kustomization.yaml; image of the chart) \
                 or its pull secret; {describe}"
            ),
            "CrashLoopBackOff" | "Error" | "OOMKilled" => {
                format!("kubectl -n {namespace} logs {name} --previous")
            }
            _ => describe,
        };
        let colon = if message.is_empty() { "" } else { ": " };
        (format!("{reason}{colon}{message}"), fix)
    } else {
        let fix = format!("kubectl -n {namespace} logs {name}; /readyz names what it waits for");
        ("not ready".to_owned(), fix)
    };
    (format!("{name}: {why}"), fix)
}

/// Returns the reason and the message of the first container that waits or has failed.
fn waiting(pod: &Pod) -> Option<(&str, String)> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter();
    let mut states = init.chain(&status.container_statuses).flatten();
    states.find_map(|s| {
        let state = s.state.as_ref()?;
        if let Some(waiting) = &state.waiting {
            let reason = waiting.reason.as_deref().unwrap_or("waiting");
            return Some((reason, waiting.message.clone().unwrap_or_default()));
        }
        let ended = state.terminated.as_ref().filter(|t| t.exit_code != 0)?;
        let reason = ended.reason.as_deref().unwrap_or("Error");
        Some((reason, format!("exit code {}", ended.exit_code)))
    })
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|c| c.status == "True")
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Checks that the components' accounts have the rights that they need most.
pub(super) fn rights(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let rights = state.cluster.rights.as_ref()?;
    let mut refused = BTreeMap::<&str, Vec<String>>::new();
    for (right, _) in rights.iter().filter(|(_, allowed)| !allowed) {
        let account = refused.entry(&right.account).or_default();
        account.push(right.to_string());
    }
    let (namespace, reapply) = (&state.cluster.namespace, state.reapply());
    for (account, refused) in refused {
        let object = format!("ServiceAccount {namespace}/{account}");
        let text = format!("may not {}", first_of(&refused, MAX_RIGHTS));
        let fix = format!(
            "restore its roles and their bindings: {reapply}; kubectl get \
             clusterrolebinding/{account} and kubectl -n {namespace} get rolebinding/{account}"
        );
        out.push(problem("RightMissing", object, text, fix));
    }
    let object = counted(rights.len(), "right");
    let text = "the components' accounts have the rights that they need most";
    Some(passed("RightsGranted", object, text))
}

/// Checks that a replica of the controller and of allocators leads.
pub(super) fn leases(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let (leases, namespace) = (state.cluster.leases.as_ref()?, &state.cluster.namespace);
    for workload in state.of(Controller).chain(state.of(Role::GpuSlice)) {
        let (name, effect) = match (workload.role, workload.object_flag("--lease")) {
            (Controller, _) => (CONTROLLER, "no controller works"),
            (_, Some((own, name))) if own == namespace => (name, "no replica reserves cards"),
            _ => continue,
        };
        let lease = leases.iter().find(|l| l.name_any() == name);
        let object = format!("Lease {namespace}/{name}");
        out.push(match holder(lease, state.cluster.now) {
            Ok(holder) => passed("LeaseHeld", object, format!("held by {holder}")),
            Err((check, why)) => {
                let logs = state.logs(workload);
                let fix = format!("{logs}; its Role must let it create and update the Lease");
                problem(check, object, format!("{why}: {effect}"), fix)
            }
        });
    }
    None
}

fn holder(lease: Option<&Lease>, now: Timestamp) -> Result<String, Fault> {
    let lease = lease.ok_or(("LeaseMissing", "does not exist".to_owned()))?;
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.filter(|h| !h.is_empty());
    let Some((holder, renewed)) = holder.zip(spec.renew_time) else {
        return Err(("LeaseExpired", "has no holder".to_owned()));
    };
    let term = i64::from(spec.lease_duration_seconds.unwrap_or(0).max(1));
    if now.duration_since(renewed.0) <= SignedDuration::from_secs(MAX_MISSED_TERMS * term) {
        return Ok(holder);
    }
    let ago = age::ago(renewed.0, now);
    let limit = format!("{MAX_MISSED_TERMS} times its duration of {term} s");
    let text = format!("{holder} renewed it {ago}, more than {limit}");
    Err(("LeaseExpired", text))
}

/// Checks that a latency agent runs on each schedulable node.
pub(super) fn agents(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let cluster = state.cluster;
    let (nodes, pods) = (cluster.nodes.as_ref()?, cluster.pods.as_ref()?);
    cluster.daemon_sets.as_ref()?;
    let namespace = &cluster.namespace;
    let Some(agents) = state.of(Role::LatencyAgent).next() else {
        state.of(Role::Latency).next()?;
        let object = format!("latency agent, namespace {namespace}");
        let text = "no DaemonSet runs the latency agent: nothing is measured, only tables count";
        return Some(warning("AgentsMissing", object, text, state.reapply()));
    };
    let specs = agents.pods(pods).filter_map(|p| p.spec.as_ref());
    let hosts: BTreeSet<&str> = specs.flat_map(|s| s.node_name.as_deref()).collect();
    let eligible = nodes.iter().filter(|n| is_eligible(n, agents.spec));
    let eligible: Vec<String> = eligible.map(ResourceExt::name_any).collect();
    let without = eligible.iter().filter(|n| !hosts.contains(n.as_str()));
    let without: Vec<&String> = without.collect();
    let object = counted(eligible.len(), "node");
    if !without.is_empty() {
        let (count, nodes) = (without.len(), first_of(&without, MAX_NODES));
        let effect = "their round-trip times are not measured";
        let text = format!("no agent on {count} of {object}: {nodes}; {effect}");
        let fix = format!(
            "kubectl -n {namespace} describe {}: its events, nodeSelector, tolerations and \
             priority class",
            agents.kubectl()
        );
        out.push(problem("AgentsMissing", agents.object(), text, fix));
    }
    let text = "each schedulable node has a latency agent";
    Some(passed("AgentsRun", object, text))
}

/// Returns whether the DaemonSet puts a pod on a node; a cordoned node needs no pod. With node
/// affinity it returns false, since only the DaemonSet's controller knows.
fn is_eligible(node: &Node, spec: &PodSpec) -> bool {
    let affinity = spec.affinity.iter().find_map(|a| a.node_affinity.as_ref());
    let pod = Pod {
        spec: Some(spec.clone()),
        ..Pod::default()
    };
    let (node, placement) = (convert::node(node), convert::pod(&pod).placement);
    let placement = placement.unwrap_or_default();
    let is_selected = |(k, v): &(String, String)| node.labels.get(k) == Some(v.as_str());
    let is_allowed = |taint: &Taint| {
        // Every DaemonSet tolerates the node controller's taints.
        taint.effect == "PreferNoSchedule"
            || taint.key.starts_with("node.kubernetes.io/")
            || is_tolerated(taint, &placement.tolerations)
    };
    affinity.is_none()
        && !node.unschedulable
        && placement.node_selector.iter().all(is_selected)
        && node.taints.iter().all(is_allowed)
}

/// Checks that all pods, and this binary, are of one version.
pub(super) fn versions(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let pods = state.cluster.pods.as_ref()?;
    // The workloads and the number of pods of each version.
    let mut versions = BTreeMap::<&str, (Vec<&str>, usize)>::new();
    for workload in &state.workloads {
        for pod in workload.pods(pods) {
            let mut containers = pod.spec.iter().flat_map(|s| &s.containers);
            let same = containers.find(|c| c.name == workload.container.name);
            if let Some(tag) = same.and_then(|c| version_of(c.image.as_deref()?)) {
                let (names, count) = versions.entry(tag).or_default();
                *count += 1;
                if !names.contains(&workload.name) {
                    names.push(workload.name);
                }
            }
        }
    }
    let own = state.cluster.version.as_str();
    let object = format!("images, namespace {}", state.cluster.namespace);
    let (text, fix) = match versions.keys().next() {
        _ if versions.len() > 1 => {
            let listed = versions.iter().map(|(version, (names, count))| {
                let pods = counted(*count, "pod");
                format!("{version} ({pods}: {})", names.join(", "))
            });
            let text = format!("differ: {}", listed.collect::<Vec<_>>().join("; "));
            let fix = format!(
                "wait for the rollout, or set one image (images of \
                 deploy/base/kustomization.yaml; image of the chart) and apply it: {}",
                state.reapply()
            );
            (text, fix)
        }
        Some(version) if *version != own => {
            let text = format!("are of {version}, this tautline is of {own}");
            let fix = format!("use tautline {version}, or update the installation to {own}");
            (text, fix)
        }
        Some(version) => {
            let text = format!("all of {version}, as this tautline");
            return Some(passed("VersionsEqual", object, text));
        }
        None => {
            return Some(passed("VersionsEqual", object, "have no tag to compare"));
        }
    };
    out.push(warning("VersionsDiffer", object, text, fix));
    None
}

/// Returns the tag of an image without its `v`; `None` for an image with a digest only.
pub(crate) fn version_of(image: &str) -> Option<&str> {
    let name = image.split('@').next().unwrap_or(image);
    let last = name.rsplit('/').next().unwrap_or(name);
    let (_, tag) = last.split_once(':')?;
    let version = tag.strip_prefix('v');
    let version = version.filter(|t| t.starts_with(|c: char| c.is_ascii_digit()));
    Some(version.unwrap_or(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_images() {
        for (image, expected) in [
            ("tautline", None),
            ("tautline:0.1.0", Some("0.1.0")),
            ("host:5000/team/tautline", None),
            ("host:5000/team/tautline:v0.2.0@sha256:00", Some("0.2.0")),
            ("tautline@sha256:00", None),
            ("tautline:vision", Some("vision")),
        ] {
            assert_eq!(version_of(image), expected, "{image}");
        }
    }
}
