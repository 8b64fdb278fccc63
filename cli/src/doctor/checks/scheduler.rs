//! Checks that kube-scheduler calls the extender, and that governed pods get nodes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::ResourceExt;
use tautline_api::convert;
use tautline_core::constraints::{PodIdentity, is_governed};

use crate::{
    age,
    doctor::{
        cluster::{FilterRequests, State},
        finding::{Finding, counted, first_of, not_checked, passed, problem, warning},
        workload::{Role, condition},
    },
};

/// The time for kube-scheduler to look at a new pod.
const GRACE_SECONDS: i64 = 30;
/// The maximum number of pods that one finding names.
const MAX_PODS: usize = 3;
/// The maximum number of reason codes that one finding names.
const MAX_CODES: usize = 5;

/// Returns the governed pods; `None` if pods or offers were not read.
fn governed_pods<'s>(state: &'s State<'_>) -> Option<Vec<&'s Pod>> {
    state.cluster.offers.as_ref()?;
    let pods = state.cluster.workload_pods.as_ref()?;
    let is_governed = |pod: &&Pod| {
        let pod = convert::pod(pod);
        let identity = PodIdentity::from(&pod);
        !pod.finished
            && !pod.terminating
            && !state.is_exempt(&identity.namespace)
            && is_governed(&state.snapshot, &identity)
    };
    Some(pods.iter().filter(is_governed).collect())
}

fn title(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

/// Checks that kube-scheduler calls the extender.
pub(super) fn calls(state: &State<'_>, _: &mut Vec<Finding>) -> Option<Finding> {
    let extender = state.of(Role::Extender).next()?;
    let (cluster, object) = (state.cluster, extender.object());
    let (namespace, answers) = (&cluster.namespace, &cluster.filter_requests);
    let read = || answers.values().flatten();
    let total: u64 = read().map(|r| r.count).sum();
    if total > 0 {
        let last = read().filter_map(|r| r.last).max();
        let last = last.map(|at| format!(", the last {}", age::ago(at, cluster.now)));
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        let (requests, last) = (counted(total, "filter request"), last.unwrap_or_default());
        let text = format!("kube-scheduler calls it: {requests} so far{last}");
        return Some(passed("SchedulerCalls", object, text));
    }
    let calls = || format!("calls of kube-scheduler to {object}");
    if let Some((pod, Err(error))) = answers.iter().find(|(_, answer)| answer.is_err()) {
        let why =
            format!("the metrics of pod {pod} cannot be read through the API server: {error}");
        let fix = format!(
            "allow get pods/proxy in {namespace}, or read tautline_extender_requests_total: \
             kubectl -n {namespace} port-forward {} 9090",
            extender.kubectl()
        );
        return Some(not_checked(calls(), &why, fix));
    }
    let pods = cluster.pods.as_deref();
    if answers.is_empty() {
        pods?;
        let fix = format!("kubectl -n {namespace} get pods");
        return Some(not_checked(calls(), "no pod of it runs", fix));
    }
    let pods = extender.pods(pods.unwrap_or_default());
    let statuses = pods.filter_map(|p| p.status.as_ref());
    let started = statuses
        .filter_map(|s| Some(s.start_time.as_ref()?.0))
        .min();
    let governed = governed_pods(state)?.into_iter();
    let waiting = governed.filter(|pod| should_have_been_filtered(pod, started, cluster.now));
    let waiting: Vec<String> = waiting.map(title).collect();
    if waiting.is_empty() {
        let text = "not called yet: no governed pod was created since it started";
        return Some(passed("SchedulerCalls", object, text));
    }
    let text = format!(
        "kube-scheduler has never called it, though offers govern pods that were created since: {}",
        first_of(&waiting, MAX_PODS)
    );
    let mut images = extender.spec.containers.iter().flat_map(|c| &c.image);
    let fix = if images.any(|image| image.contains("kube-scheduler")) {
        // The extender's own kube-scheduler asks about the pods that name it.
        "spec.schedulerName of governed pods: the webhook configuration tautline-governed sets \
         it at creation, unless the label tautline.io/second-scheduler: disabled of the \
         namespace opts out; create the pods again"
    } else {
        "the extenders of kube-scheduler's configuration (deploy/scheduler), started with \
         --config: docs/extender.md, \"kube-scheduler's part\"; with a gated configuration \
         the pods must request constraint.ciena.com/governed"
    };
    Some(problem("SchedulerNeverCalls", object, text, fix))
}

/// Returns whether kube-scheduler must have asked about a pod since the extender started.
fn should_have_been_filtered(pod: &Pod, started: Option<Timestamp>, now: Timestamp) -> bool {
    let created = pod.metadata.creation_timestamp.as_ref().map(|t| t.0);
    let spec = pod.spec.clone().unwrap_or_default();
    let gated = spec.scheduling_gates.is_some_and(|gates| !gates.is_empty());
    let is_old = created.is_none_or(|c| now.as_second() - c.as_second() > GRACE_SECONDS);
    let since = started.zip(created).is_some_and(|(s, c)| c > s);
    let pending = spec.node_name.is_none_or(|n| n.is_empty());
    !gated && is_old && (since || pending)
}

/// Finds governed pods without a node, by the extender's reasons.
pub(super) fn pending(state: &State<'_>, _: &mut Vec<Finding>) -> Option<Finding> {
    let mut reasons = BTreeMap::<&str, usize>::new();
    let mut pods = Vec::new();
    for pod in governed_pods(state)? {
        let scheduled = condition(pod, "PodScheduled").filter(|c| c.status == "False");
        let message = scheduled.and_then(|c| c.message.as_deref());
        let codes = message.map(codes).unwrap_or_default();
        if !codes.is_empty() {
            pods.push(title(pod));
        }
        for code in codes {
            *reasons.entry(code).or_default() += 1;
        }
    }
    let first = pods.first()?;
    let mut counts: Vec<(&str, usize)> = reasons.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let counts: Vec<String> = counts.iter().map(|(r, n)| format!("{r} ({n})")).collect();
    let (named, counts) = (first_of(&pods, MAX_PODS), first_of(&counts, MAX_CODES));
    let text = format!("no node is usable for {named}: {counts}");
    let fix = format!("tautline explain {first}; docs/troubleshooting.md, \"Reason codes\"");
    let object = counted(pods.len(), "pending governed pod");
    Some(warning("PodsPending", object, text, fix))
}

/// Returns the `rule/Code` parts of kube-scheduler's message, each once.
fn codes(message: &str) -> Vec<&str> {
    let is_code = |word: &&str| {
        word.rsplit_once('/').is_some_and(|(rule, code)| {
            !rule.is_empty()
                && code.starts_with(|c: char| c.is_ascii_uppercase())
                && code.chars().all(|c| c.is_ascii_alphabetic())
        })
    };
    let words = message.split([' ', ',', ';']);
    let words = words.map(|w| w.trim_end_matches(['.', ':']));
    let codes: BTreeSet<&str> = words.filter(is_code).collect();
    codes.into_iter().collect()
}

/// Reads the filter requests from the extender's metrics.
pub(in crate::doctor) fn filter_requests(metrics: &str) -> FilterRequests {
    let values = |name: &'static str| {
        let lines = metrics.lines().filter(move |line| {
            let labels = line.strip_prefix(name);
            labels.is_some_and(|l| l.starts_with('{') && l.contains("verb=\"filter\""))
        });
        lines.filter_map(|line| line.rsplit(' ').next())
    };
    let counts = values("tautline_extender_requests_total");
    let mut last = values("tautline_extender_last_request_timestamp_seconds");
    FilterRequests {
        count: counts.filter_map(|v| v.parse::<u64>().ok()).sum(),
        last: last.find_map(|v| Timestamp::from_second(v.parse().ok()?).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_requests_are_summed_over_statuses() {
        let metrics = "# TYPE tautline_extender_requests counter\n\
            tautline_extender_requests_total{verb=\"filter\",status=\"200\"} 12\n\
            tautline_extender_requests_total{verb=\"filter\",status=\"503\"} 3\n\
            tautline_extender_requests_total{verb=\"prioritize\",status=\"200\"} 40\n\
            tautline_extender_requests_total{verb=\"filter\",status=\"x\"} odd\n\
            tautline_extender_last_request_timestamp_seconds{verb=\"bind\"} 1800000001\n\
            tautline_extender_last_request_timestamp_seconds{verb=\"filter\"} 1800000000\n# EOF\n";
        let found = filter_requests(metrics);
        assert_eq!(found.count, 15);
        assert_eq!(found.last.map(Timestamp::as_second), Some(1_800_000_000));
        assert_eq!(filter_requests(""), FilterRequests::default());
    }

    #[test]
    fn codes_are_found_in_the_message_of_kube_scheduler() {
        let message = "0/12 nodes are available: 1 gpu-slice/WrongModel, 3 latency/OverLimit, 8 \
                       Insufficient nvidia.com/gpu-shared. preemption: 0/12 nodes are available.";
        assert_eq!(
            codes(message),
            ["gpu-slice/WrongModel", "latency/OverLimit"]
        );
        let missing = "0/1 nodes are available: 1 near/PolicyMissing.";
        assert_eq!(codes(missing), ["near/PolicyMissing"]);
    }
}
