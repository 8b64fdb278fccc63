//! Converts a pod of the Kubernetes API to the pod of the model, with the fields that rules,
//! planning and the underlay need.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{self as corev1, NodeSelectorTerm, PodSpec};
use tautline_core::{
    group::POD_GROUP_LABEL,
    model::{AffinityTerm, NodeConstraints, Observed, Pod, Toleration, TolerationValue},
    names::DEFAULT_SCHEDULER,
    node_filter,
    planning::fnv1a_64,
    selector::{Expression, Labels},
};

use super::{
    container_requests_of, created_unix, name, namespace, pod_affinity, pod_claims, pod_rules,
    requests,
};

/// The prefixes of annotations that record allocations.
const INDEXED_ANNOTATIONS: [&str; 3] = [
    "tautline.io/",
    "alibabacloud.com/gpu",
    "constraint.ciena.com/",
];

/// The prefix of the finalizer that holds a pod until the underlay has released its allocation. The
/// allocation's id follows the prefix.
pub const UNDERLAY_FINALIZER: &str = "constraint.ciena.com/remove-underlay_";
/// The annotation with the underlay's Service, `namespace/name`.
pub const UNDERLAY_ANNOTATION: &str = "constraint.ciena.com/underlay";
/// The annotation with the time and the cause of the last requeue of a rejected pod.
pub const REQUEUE_ANNOTATION: &str = "constraint.ciena.com/woken";

/// Converts a pod. Malformed affinity terms match no node, as in kube-scheduler.
pub fn pod(pod: &corev1::Pod) -> Pod {
    let spec = pod.spec.as_ref();
    let node = spec
        .and_then(|s| s.node_name.as_deref())
        .filter(|n| !n.is_empty());
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    // A requeue does not count as a change of the pod.
    let is_indexed = |key: &&String| {
        *key != REQUEUE_ANNOTATION && INDEXED_ANNOTATIONS.iter().any(|p| key.starts_with(p))
    };
    Pod {
        namespace: namespace(&pod.metadata),
        name: name(&pod.metadata),
        uid: pod.metadata.uid.as_deref().unwrap_or_default().into(),
        created_unix: created_unix(&pod.metadata),
        labels: pod_labels(pod),
        annotations: pod
            .metadata
            .annotations
            .iter()
            .flatten()
            .filter(|(k, _)| is_indexed(k))
            .collect(),
        node: node.map(Into::into),
        requests: requests(pod),
        finished: matches!(phase, Some("Succeeded" | "Failed")),
        failed: phase == Some("Failed"),
        ready: condition(pod, "Ready").is_some_and(|c| c.status == "True"),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        owner: owner(pod),
        underlay: underlay(pod),
        pod_terms: spec.map_or_else(Default::default, |s| {
            pod_affinity::terms(s, &namespace(&pod.metadata), node.is_none())
        }),
        placement: spec.filter(|_| node.is_none()).map(|s| {
            Box::new(NodeConstraints {
                annotations: relevant_annotations(pod.metadata.annotations.as_ref()).collect(),
                claims: pod_claims(pod).names.into_iter().map(Into::into).collect(),
                rejected_by: condition(pod, "PodScheduled")
                    .filter(|c| c.status == "False" && c.reason.as_deref() == Some("Unschedulable"))
                    .and_then(|c| c.message.as_deref())
                    .map(rules_in)
                    .unwrap_or_default(),
                observed: observed(pod),
                ..placement(s)
            })
        }),
        rules: pod_rules::pod_rules(pod, node.is_some()),
        reduced: false,
    }
}

pub(super) fn condition<'a>(pod: &'a corev1::Pod, type_: &str) -> Option<&'a corev1::PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == type_)
}

fn owner(pod: &corev1::Pod) -> u64 {
    let owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.into_iter().find(|o| o.controller == Some(true));
    controller.map_or(0, |o| owner_hash(&o.uid))
}

/// Returns the hash by which pods of one controller are known, of the controller's UID.
pub fn owner_hash(uid: &str) -> u64 {
    fnv1a_64(&[uid])
}

fn underlay(pod: &corev1::Pod) -> Box<[Box<str>]> {
    let finalizers = pod.metadata.finalizers.iter().flatten();
    finalizers
        .filter_map(|f| f.strip_prefix(UNDERLAY_FINALIZER))
        .map(Into::into)
        .collect()
}

/// Returns the annotations for providers. Leaves out kubectl's copy of the object, which is long,
/// and Tautline's own records, which must not make equal pods differ.
pub fn relevant_annotations(
    all: Option<&BTreeMap<String, String>>,
) -> impl Iterator<Item = (&String, &String)> {
    all.into_iter().flatten().filter(|(key, _)| {
        *key != "kubectl.kubernetes.io/last-applied-configuration"
            && *key != REQUEUE_ANNOTATION
            && !key.starts_with(UNDERLAY_ANNOTATION)
    })
}

/// Returns the names of rules in kube-scheduler's message, which has them as `RULE/REASON`.
fn rules_in(message: &str) -> Vec<Box<str>> {
    let mut rules: Vec<Box<str>> = message
        .split([' ', ',', ';'])
        .filter_map(|word| {
            let (rule, code) = word.trim_end_matches(['.', ':']).rsplit_once('/')?;
            let is_code = code.starts_with(|c: char| c.is_ascii_uppercase())
                && code.chars().all(|c| c.is_ascii_alphabetic());
            (is_code && !rule.is_empty()).then(|| rule.into())
        })
        .collect();
    rules.sort();
    rules.dedup();
    rules
}

/// Packs labels or annotations.
pub fn labels(map: Option<&BTreeMap<String, String>>) -> Labels {
    map.into_iter().flatten().collect()
}

/// Returns a pod's labels, with the name of its PodGroup as one more.
pub(super) fn pod_labels(pod: &corev1::Pod) -> Labels {
    let group = pod.spec.as_ref().and_then(|s| s.scheduling_group.as_ref());
    let group = group.and_then(|group| group.pod_group_name.as_deref());
    let own = pod.metadata.labels.iter().flatten();
    let own = own.map(|(key, value)| (key.as_str(), value.as_str()));
    own.chain(group.map(|name| (POD_GROUP_LABEL, name)))
        .collect()
}

fn placement(spec: &PodSpec) -> NodeConstraints {
    let required = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|n| {
            n.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    NodeConstraints {
        scheduler: spec
            .scheduler_name
            .clone()
            .unwrap_or_else(|| DEFAULT_SCHEDULER.into()),
        priority: spec.priority.unwrap_or_default(),
        gated: spec
            .scheduling_gates
            .as_ref()
            .is_some_and(|g| !g.is_empty()),
        node_selector: spec
            .node_selector
            .clone()
            .unwrap_or_default()
            .into_iter()
            .collect(),
        affinity: required.map_or_else(Vec::new, |r| {
            match r.node_selector_terms.as_slice() {
                // A selector without terms selects no node.
                [] => vec![AffinityTerm::default()],
                terms => terms.iter().map(affinity_term).collect(),
            }
        }),
        tolerations: spec
            .tolerations
            .iter()
            .flatten()
            .filter_map(toleration)
            .collect(),
        annotations: Labels::default(),
        claims: Vec::new(),
        containers: container_requests_of(spec),
        rejected_by: Vec::new(),
        observed: Observed::default(),
    }
}

/// Converts a toleration. Returns `None` if its operator or bound is malformed, because it then
/// tolerates nothing.
fn toleration(t: &corev1::Toleration) -> Option<Toleration> {
    let value = t.value.as_deref().unwrap_or_default();
    Some(Toleration {
        key: t.key.clone().filter(|k| !k.is_empty()),
        value: match t.operator.as_deref().unwrap_or_default() {
            "Exists" => TolerationValue::Any,
            "" | "Equal" => TolerationValue::Equal(value.to_owned()),
            // The API server refuses these operators unless the feature gate
            // TaintTolerationComparisonOperators is on.
            "Lt" => TolerationValue::Below(node_filter::integer(value)?),
            "Gt" => TolerationValue::Above(node_filter::integer(value)?),
            _ => return None,
        },
        effect: t.effect.clone().filter(|e| !e.is_empty()),
    })
}

fn observed(pod: &corev1::Pod) -> Observed {
    let version = pod.metadata.resource_version.as_deref();
    let hash = |c: &corev1::PodCondition| {
        let [reason, message] = [&c.reason, &c.message].map(|t| t.as_deref().unwrap_or_default());
        fnv1a_64(&[&c.status, reason, message])
    };
    Observed {
        resource_version: version.and_then(|v| v.parse().ok()).unwrap_or_default(),
        attempt: condition(pod, "PodScheduled").map_or(0, hash),
    }
}

/// Converts one term of a node selector. A term with a malformed expression matches no node.
pub fn affinity_term(term: &NodeSelectorTerm) -> AffinityTerm {
    let mut out = AffinityTerm::default();
    let mut malformed = false;
    for e in term.match_expressions.iter().flatten() {
        let values = e.values.clone().unwrap_or_default();
        match e.operator.as_str() {
            op @ ("Gt" | "Lt") => match values.as_slice() {
                [bound] if let Ok(bound) = bound.parse() => {
                    out.compare.push((e.key.clone(), op == "Gt", bound))
                }
                _ => malformed = true,
            },
            op => match Expression::new(&e.key, op, values) {
                Ok(expression) => out.labels.push(expression),
                Err(_) => malformed = true,
            },
        }
    }
    for e in term.match_fields.iter().flatten() {
        let values = e.values.clone().unwrap_or_default();
        match (e.key.as_str(), e.operator.as_str()) {
            ("metadata.name", op @ ("In" | "NotIn")) if values.len() == 1 => {
                out.names.push((op == "In", values));
            }
            _ => malformed = true,
        }
    }
    if malformed {
        AffinityTerm::default()
    } else {
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> PodSpec {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn rules_in_finds_reason_codes() {
        let message = "0/5 nodes are available: 1 Insufficient cpu, 2 gpu-slice/NoSharedGpu, \
                       1 latency/OverLimit, 1 node(s) had untolerated taint {a/b: x}. \
                       preemption: 0/5 nodes are available: 5 a.b/c/NoCost.";
        assert_eq!(
            rules_in(message),
            ["a.b/c", "gpu-slice", "latency"].map(Into::into)
        );
        assert!(rules_in("0/1 nodes are available: node.kubernetes.io/not-ready").is_empty());
    }

    #[test]
    fn tolerations_compare_integers() {
        let of = |operator: &str, value: &str| {
            let json = serde_json::json!({"key": "k", "operator": operator, "value": value});
            let toleration = toleration(&serde_json::from_value(json).unwrap());
            toleration.map(|t| t.value)
        };
        assert_eq!(of("Exists", ""), Some(TolerationValue::Any));
        assert_eq!(of("", "a"), Some(TolerationValue::Equal("a".into())));
        assert_eq!(of("Lt", "100"), Some(TolerationValue::Below(100)));
        assert_eq!(of("Gt", "-5"), Some(TolerationValue::Above(-5)));
        for (operator, value) in [("Gt", "x"), ("Lt", "007"), ("Gt", "+5"), ("Near", "1")] {
            assert_eq!(of(operator, value), None, "{operator} {value}");
        }
    }

    #[test]
    fn pod_with_malformed_affinity_matches_nothing() {
        let spec = spec(
            r#"{"containers":[],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
               {"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Near"}]}]}}}}"#,
        );
        assert_eq!(placement(&spec).affinity, [AffinityTerm::default()]);
    }
}
