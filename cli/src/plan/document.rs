//! The plan as a document: with a version, in a stable order, and without times unless asked.

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::changes::{API_VERSION, Changes, KIND};
use crate::local::{Placement, UnschedulableNode};

/// The fields of a decision that differ from run to run.
const TIMES: [&str; 4] = [
    "atUnixMillis",
    "tookMicros",
    "ageMicros",
    "expiresUnixMillis",
];

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plan<'a> {
    api_version: &'static str,
    kind: &'static str,
    pub(super) summary: Counts,
    /// The warnings about manifests or the cluster, in their order there.
    pub(super) warnings: Vec<String>,
    /// The differences from the saved plan; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) changes: Option<Changes>,
    /// The pods, sorted by namespace and name.
    pods: Vec<PlannedPod<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct Counts {
    pub(super) nodes: usize,
    pods: usize,
    placed: usize,
    pending: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlannedPod<'a> {
    namespace: &'a str,
    pod: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    gates: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    not_considered: &'a [String],
    misfits: &'a [UnschedulableNode],
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<Value>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(nodes: usize, placements: &'a [Placement], timings: bool) -> Result<Self> {
        let pod = |p: &'a Placement| -> Result<PlannedPod<'a>> {
            let mut round = p.round.as_ref().map(serde_json::to_value).transpose()?;
            if !timings {
                round.iter_mut().for_each(remove_times);
            }
            Ok(PlannedPod {
                namespace: &p.namespace,
                pod: &p.pod,
                node: p.node.as_deref(),
                message: p.message.as_deref(),
                gates: &p.gates,
                not_considered: &p.not_considered,
                misfits: &p.misfits,
                round,
            })
        };
        let mut pods = placements.iter().map(pod).collect::<Result<Vec<_>>>()?;
        pods.sort_by_key(|p| (p.namespace, p.pod));
        let placed = pods.iter().filter(|p| p.node.is_some()).count();
        Ok(Self {
            api_version: API_VERSION,
            kind: KIND,
            summary: Counts {
                nodes,
                pods: pods.len(),
                placed,
                pending: pods.len() - placed,
            },
            warnings: Vec::new(),
            changes: None,
            pods,
        })
    }
}

fn remove_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !TIMES.contains(&name.as_str()));
            fields.values_mut().for_each(remove_times);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_times),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_are_sorted_and_times_left_out() {
        let record = json!({
            "namespace": "shop", "pod": "b", "uid": "u", "atUnixMillis": 7, "tookMicros": 8,
            "usable": 1, "nodes": [], "rules": [{
                "offer": "o", "rule": "latency", "request": "", "limit": "20ms", "weight": 1,
                "outcome": "OK", "counted": true, "tookMicros": 9, "ageMicros": 10,
            }],
        });
        let placement = |pod: &str, node: Option<&str>| Placement {
            namespace: "shop".to_owned(),
            pod: pod.to_owned(),
            node: node.map(str::to_owned),
            round: Some(serde_json::from_value(record.clone()).unwrap()),
            ..Placement::default()
        };
        let placements = [placement("b", Some("n1")), placement("a", None)];
        let document = |timings| {
            let plan = Plan::new(2, &placements, timings).unwrap();
            serde_json::to_value(plan).unwrap()
        };
        let plan = document(false);
        assert_eq!(plan["apiVersion"], API_VERSION);
        assert_eq!(plan["kind"], "Plan");
        assert_eq!(
            plan["summary"],
            json!({"nodes": 2, "pods": 2, "placed": 1, "pending": 1})
        );
        assert_eq!(plan["warnings"], json!([]));
        assert_eq!(
            [&plan["pods"][0]["pod"], &plan["pods"][1]["pod"]],
            ["a", "b"]
        );
        let text = plan.to_string();
        for time in TIMES {
            assert!(!text.contains(time), "{time}: {text}");
        }
        let timed = document(true);
        assert_eq!(timed["pods"][0]["round"]["rules"][0]["ageMicros"], 10);
    }
}
