//! The components are there, and their pods are ready.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::or_ok;
use crate::doctor::{
    cluster::State,
    finding::{Finding, counted},
    workload::{Role, Workload},
};

/// Pods that one finding names.
const MAX_PODS: usize = 3;

pub(super) fn no_namespace(state: &State<'_>) -> Finding {
    let namespace = &state.cluster.namespace;
    Finding::problem(
        "NamespaceMissing",
        format!("Namespace {namespace}"),
        "does not exist: Tautline is not installed there",
        format!(
            "{}; or name Tautline's namespace with --namespace",
            state.reapply()
        ),
    )
}

pub(super) fn check(state: &State<'_>) -> Vec<Finding> {
    let cluster = state.cluster;
    if cluster.deployments.is_none() {
        return Vec::new();
    }
    let called = cluster.webhooks.iter().flatten().next().is_some();
    let required = [
        (
            Role::Extender,
            true,
            "kube-scheduler calls it to place governed pods",
        ),
        (Role::Controller, true, "it creates and evaluates bindings"),
        (Role::Admission, called, "webhook configurations name it"),
    ];
    let mut findings: Vec<Finding> = required
        .iter()
        .filter(|(role, required, _)| *required && state.of(*role).next().is_none())
        .map(|(role, _, why)| {
            let text = format!("no Deployment of the namespace runs it; {why}");
            let object = format!("{}, namespace {}", role.title(), cluster.namespace);
            Finding::problem("ComponentMissing", object, text, state.reapply())
        })
        .collect();
    let Some(pods) = &cluster.pods else {
        return findings;
    };
    for workload in &state.workloads {
        findings.extend(readiness(workload, pods, &cluster.namespace));
    }
    let passed = Finding::ok(
        "ComponentsReady",
        counted(state.workloads.len(), "component"),
        "every pod is ready",
    );
    or_ok(findings, passed)
}

fn readiness(workload: &Workload<'_>, pods: &[Pod], namespace: &str) -> Option<Finding> {
    let own: Vec<&Pod> = workload.pods(pods).filter(|p| !is_finished(p)).collect();
    let desired = workload.desired.unwrap_or(own.len());
    let object = workload.object();
    if workload.desired == Some(0) {
        let scale = format!(
            "kubectl -n {namespace} scale {} --replicas=2",
            workload.kubectl()
        );
        let text = format!("has 0 replicas: no {} runs", workload.role.title());
        return Some(Finding::problem("ComponentNotReady", object, text, scale));
    }
    let unready: Vec<&&Pod> = own.iter().filter(|p| !is_ready(p)).collect();
    let ready = own.len() - unready.len();
    if ready >= desired && unready.is_empty() {
        return None;
    }
    let faults: Vec<Fault> = unready.iter().map(|p| Fault::of(p, namespace)).collect();
    let mut texts: Vec<String> = unready
        .iter()
        .zip(&faults)
        .take(MAX_PODS)
        .map(|(pod, fault)| format!("{}: {}", pod.name_any(), fault.text))
        .collect();
    texts.extend(workload.failure.map(str::to_owned));
    if texts.is_empty() {
        let absent = desired.saturating_sub(own.len());
        texts.push(format!("{} not created", counted(absent, "pod")));
    }
    let text = format!("{ready} of {desired} pods ready; {}", texts.join("; "));
    let fix = match faults.into_iter().next() {
        Some(fault) => fault.fix,
        None => format!("kubectl -n {namespace} describe {}", workload.kubectl()),
    };
    let finding = Finding::problem("ComponentNotReady", object, text, fix);
    Some(match ready {
        0 => finding,
        // The others do its work.
        _ => Finding::warning(finding.check, finding.object, finding.text, finding.fix),
    })
}

/// Why a pod is not ready.
struct Fault {
    text: String,
    fix: String,
}

impl Fault {
    fn of(pod: &Pod, namespace: &str) -> Self {
        let name = pod.name_any();
        let describe = format!("kubectl -n {namespace} describe pod {name}");
        if let Some(message) = unscheduled(pod) {
            let text = format!("Pending: {message}");
            return Self {
                text,
                fix: describe,
            };
        }
        let Some((reason, message)) = waiting(pod) else {
            return Self {
                text: "not ready".to_owned(),
                fix: format!("kubectl -n {namespace} logs {name}; /readyz names what it waits for"),
            };
        };
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
        let text = match message.as_str() {
            "" => reason.to_owned(),
            message => format!("{reason}: {message}"),
        };
        Self { text, fix }
    }
}

fn unscheduled(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|c| c.type_ == "PodScheduled")?;
    (scheduled.status == "False").then(|| scheduled.message.as_deref().unwrap_or_default())
}

/// The reason and the message of the first container that waits or has failed.
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

pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|c| c.type_ == "Ready");
    ready.is_some_and(|c| c.status == "True")
}

pub(super) fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
