//! kube-scheduler calls the extender, and governed pods get nodes.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::ResourceExt;
use tautline_api::convert;
use tautline_core::constraints::{PodIdentity, is_governed};

use crate::{
    age,
    doctor::{
        cluster::{FilterRequests, State},
        finding::{Finding, counted, first_of},
        workload::Role,
    },
};

/// Time for kube-scheduler to look at a new pod.
const GRACE_SECONDS: i64 = 30;
const MAX_PODS: usize = 3;

pub(super) fn check(state: &State<'_>) -> Vec<Finding> {
    let governed = governed_pods(state);
    let pending = governed.as_deref().and_then(pending);
    calls(state, governed.as_deref())
        .into_iter()
        .chain(pending)
        .collect()
}

/// `None` if pods or offers were not read.
fn governed_pods<'s>(state: &'s State<'_>) -> Option<Vec<&'s Pod>> {
    state.cluster.offers.as_ref()?;
    let pods = state.cluster.workload_pods.as_ref()?;
    let is_governed = |pod: &&Pod| {
        let converted = convert::pod(pod);
        let identity = PodIdentity {
            namespace: converted.namespace.to_string(),
            name: converted.name.to_string(),
            uid: converted.uid.to_string(),
            labels: converted.labels,
        };
        !converted.finished
            && !converted.terminating
            && !state.is_exempt(&identity.namespace)
            && is_governed(&state.snapshot, &identity)
    };
    Some(pods.iter().filter(is_governed).collect())
}

fn calls(state: &State<'_>, governed: Option<&[&Pod]>) -> Option<Finding> {
    let extender = state.of(Role::Extender).next()?;
    let answers = &state.cluster.filter_requests;
    let read = || answers.values().filter_map(|a| a.as_ref().ok());
    let total: u64 = read().map(|r| r.count).sum();
    let object = extender.object();
    if total > 0 {
        let last = read().filter_map(|r| r.last).max();
        let last = last.map(|at| format!(", the last {}", age::ago(at, state.cluster.now)));
        let text = format!(
            "kube-scheduler calls it: {} so far{}",
            counted_u64(total),
            last.unwrap_or_default()
        );
        return Some(Finding::ok("SchedulerCalls", object, text));
    }
    if let Some((pod, error)) = answers
        .iter()
        .find_map(|(p, a)| Some((p, a.as_ref().err()?)))
    {
        let text = format!(
            "could not be checked: the metrics of pod {pod} cannot be read through the API \
             server: {error}"
        );
        let fix = format!(
            "allow get pods/proxy in {0}, or read tautline_extender_requests_total: kubectl -n {0} \
             port-forward {1} 9090",
            state.cluster.namespace,
            extender.kubectl()
        );
        let object = format!("calls of kube-scheduler to {object}");
        return Some(Finding::warning("NotChecked", object, text, fix));
    }
    if answers.is_empty() {
        state.cluster.pods.as_ref()?;
        let text = "could not be checked: no pod of it runs";
        let fix = format!("kubectl -n {} get pods", state.cluster.namespace);
        let object = format!("calls of kube-scheduler to {object}");
        return Some(Finding::warning("NotChecked", object, text, fix));
    }
    let started = extender
        .pods(state.cluster.pods.as_deref().unwrap_or_default())
        .filter_map(|p| p.status.as_ref()?.start_time.as_ref().map(|t| t.0))
        .min();
    let waiting: Vec<String> = governed?
        .iter()
        .filter(|pod| should_have_been_filtered(pod, started, state.cluster.now))
        .map(|pod| format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()))
        .collect();
    if waiting.is_empty() {
        let text = "not called yet: no governed pod was created since it started";
        return Some(Finding::ok("SchedulerCalls", object, text));
    }
    let text = format!(
        "kube-scheduler has never called it, though offers govern pods that were created since: {}",
        first_of(&waiting, MAX_PODS)
    );
    let mut beside = extender
        .spec
        .containers
        .iter()
        .filter_map(|c| c.image.as_deref());
    let fix = match beside.any(|image| image.contains("kube-scheduler")) {
        // The extender's own kube-scheduler asks for the pods that name it.
        true => {
            "spec.schedulerName of governed pods: the webhook configuration tautline-governed sets \
             it at creation, unless the label tautline.io/second-scheduler: disabled of the \
             namespace opts out; create the pods again"
        }
        false => {
            "the extenders of kube-scheduler's configuration (deploy/scheduler), started with \
             --config: docs/extender.md, \"kube-scheduler's part\"; with a gated configuration \
             the pods must request constraint.ciena.com/governed"
        }
    };
    Some(Finding::problem("SchedulerNeverCalls", object, text, fix))
}

/// Pods that kube-scheduler must have asked for since the extender started.
fn should_have_been_filtered(pod: &Pod, started: Option<Timestamp>, now: Timestamp) -> bool {
    let created = pod.metadata.creation_timestamp.as_ref().map(|t| t.0);
    let spec = pod.spec.clone().unwrap_or_default();
    let gated = spec.scheduling_gates.is_some_and(|gates| !gates.is_empty());
    let is_old = created.is_none_or(|c| now.as_second() - c.as_second() > GRACE_SECONDS);
    let since = started.zip(created).is_some_and(|(s, c)| c > s);
    let pending = spec.node_name.is_none_or(|n| n.is_empty());
    !gated && is_old && (since || pending)
}

fn counted_u64(count: u64) -> String {
    counted(
        usize::try_from(count).unwrap_or(usize::MAX),
        "filter request",
    )
}

/// Governed pods without a node, by the extender's reasons.
fn pending(governed: &[&Pod]) -> Option<Finding> {
    let mut reasons = BTreeMap::<String, usize>::new();
    let mut pods = Vec::new();
    for pod in governed {
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
        let scheduled = conditions
            .into_iter()
            .flatten()
            .find(|c| c.type_ == "PodScheduled");
        let message = scheduled
            .filter(|c| c.status == "False")
            .and_then(|c| c.message.as_deref());
        let codes = message.map(codes).unwrap_or_default();
        if !codes.is_empty() {
            pods.push(format!(
                "{}/{}",
                pod.namespace().unwrap_or_default(),
                pod.name_any()
            ));
        }
        for code in codes {
            *reasons.entry(code).or_default() += 1;
        }
    }
    let first = pods.first()?;
    let mut counts: Vec<(String, usize)> = reasons.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let counts: Vec<String> = counts.iter().map(|(r, n)| format!("{r} ({n})")).collect();
    let text = format!(
        "no node is usable for {}: {}",
        first_of(&pods, MAX_PODS),
        first_of(&counts, 5)
    );
    let fix = format!("tautline explain {first}; docs/troubleshooting.md, \"Reason codes\"");
    let object = counted(pods.len(), "pending governed pod");
    Some(Finding::warning("PodsPending", object, text, fix))
}

/// The `rule/Code` parts of kube-scheduler's message, each once.
fn codes(message: &str) -> Vec<String> {
    let is_code = |word: &&str| {
        word.rsplit_once('/').is_some_and(|(rule, code)| {
            !rule.is_empty()
                && code.starts_with(|c: char| c.is_ascii_uppercase())
                && code.chars().all(|c| c.is_ascii_alphabetic())
        })
    };
    let words = message
        .split([' ', ',', ';'])
        .map(|w| w.trim_end_matches(['.', ':']));
    let mut codes: Vec<String> = words.filter(is_code).map(str::to_owned).collect();
    codes.sort();
    codes.dedup();
    codes
}

/// The filter requests in the extender's metrics.
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
