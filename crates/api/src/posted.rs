//! Decodes a pod in JSON, as kube-scheduler posts it, only as far as planning needs: in a pod of
//! the largest size, 45,000 entries of `env` would take 18 MB as objects. [`crate::watched`] does
//! the same for protobuf.

use k8s_openapi::api::core::v1::Pod;

use crate::watched::messages;

/// Decodes a pod. Containers without resources are left out.
///
/// # Errors
/// The text is not the JSON of a pod.
pub fn pod(json: &str) -> Result<Pod, serde_json::Error> {
    Ok(serde_json::from_str::<messages::Pod>(json)?.into())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::convert;

    fn assert_agrees(json: &Value) {
        let posted = pod(&json.to_string()).unwrap();
        let whole: Pod = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(convert::pod(&posted), convert::pod(&whole));
        assert_eq!(convert::pod_claims(&posted), convert::pod_claims(&whole));
        let annotations = |pod: &Pod| {
            let all = convert::relevant_annotations(pod.metadata.annotations.as_ref());
            all.map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>()
        };
        assert_eq!(annotations(&posted), annotations(&whole));
    }

    /// Kubernetes' own sample has every field.
    #[test]
    fn pod_agrees_with_all_that_planning_reads_of_a_whole_pod() {
        let sample = include_str!("../testdata/core.v1.Pod.json");
        let mut sample: Value = serde_json::from_str(sample).unwrap();
        // kube-scheduler posts pods without a node.
        sample["spec"]["nodeName"] = Value::Null;
        assert_agrees(&sample);
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "image": "i",
            "resources": {"requests": {"cpu": "1"}}});
        sample["spec"]["initContainers"] = json!([sidecar]);
        sample["spec"]["containers"] =
            json!([sidecar, {"name": "b"}, {"name": "c", "resources": {}}]);
        assert_agrees(&sample);
    }

    #[test]
    fn pod_reads_null_as_absent_and_refuses_other_types() {
        for text in [
            "{}",
            r#"{"metadata":null,"spec":null,"status":null}"#,
            r#"{"metadata":{"labels":null},"spec":{"containers":null,"initContainers":null}}"#,
        ] {
            assert_agrees(&serde_json::from_str(text).unwrap());
        }
        for text in [
            "7",
            r#"{"spec":{"containers":{}}}"#,
            r#"{"spec":{"priority":"1"}}"#,
        ] {
            assert!(pod(text).is_err(), "{text}");
        }
    }
}
