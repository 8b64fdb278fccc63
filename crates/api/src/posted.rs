//! Decodes a pod in JSON, as kube-scheduler posts it, only as far as planning needs: in a pod of
//! the largest size, 45,000 entries of `env` would take 18 MB as objects. [`crate::watched`] does
//! the same for protobuf.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{
    api::core::v1::{
        Affinity, Container as ApiContainer, Pod, PodCondition, PodExtendedResourceClaimStatus,
        PodResourceClaim, PodResourceClaimStatus, PodSchedulingGate, PodSpec, PodStatus,
        ResourceRequirements, Toleration,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, OwnerReference, Time},
    },
};
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use crate::mirror::{mirrors, part, part_or_default};

/// Decodes a pod. Containers without resources are left out.
///
/// # Errors
/// The text is not the JSON of a pod.
pub fn pod(json: &str) -> Result<Pod, serde_json::Error> {
    Ok(serde_json::from_str::<PostedPod>(json)?.into())
}

mirrors! {
    [#[derive(Default, Deserialize)] #[serde(rename_all = "camelCase")]]

    PostedPod => Pod {
        metadata: Option<Metadata> => part_or_default;
        spec: Option<Spec> => part;
        status: Option<Status> => part;
    }
    Metadata => ObjectMeta {
        name: Option<String>;
        namespace: Option<String>;
        uid: Option<String>;
        resource_version: Option<String>;
        creation_timestamp: Option<Time>;
        deletion_timestamp: Option<Time>;
        labels: Option<BTreeMap<String, String>>;
        annotations: Option<BTreeMap<String, String>>;
        owner_references: Option<Vec<OwnerReference>>;
        finalizers: Option<Vec<String>>;
    }
    Spec => PodSpec {
        #[serde(default)] containers: Containers => |all: Containers| all.0;
        #[serde(default)] init_containers: Containers => |all: Containers| Some(all.0);
        affinity: Option<Affinity>;
        node_name: Option<String>;
        node_selector: Option<BTreeMap<String, String>>;
        overhead: Option<BTreeMap<String, Quantity>>;
        priority: Option<i32>;
        resource_claims: Option<Vec<PodResourceClaim>>;
        resources: Option<ResourceRequirements>;
        scheduler_name: Option<String>;
        scheduling_gates: Option<Vec<PodSchedulingGate>>;
        tolerations: Option<Vec<Toleration>>;
    }
    Status => PodStatus {
        phase: Option<String>;
        conditions: Option<Vec<PodCondition>>;
        resource_claim_statuses: Option<Vec<PodResourceClaimStatus>>;
        extended_resource_claim_status: Option<PodExtendedResourceClaimStatus>;
    }
    Container => ApiContainer {
        name: Option<String> => Option::unwrap_or_default;
        resources: Option<ResourceRequirements>;
        restart_policy: Option<String>;
    }
}

/// The containers with resources.
#[derive(Default)]
struct Containers(Vec<ApiContainer>);

impl<'de> Deserialize<'de> for Containers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Containers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of containers")
            }
            fn visit_unit<E>(self) -> Result<Containers, E> {
                Ok(Containers::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Containers, A::Error> {
                let mut containers = Vec::new();
                while let Some(container) = seq.next_element::<Container>()? {
                    let counts = |r: &ResourceRequirements| {
                        r.requests.is_some() || r.limits.is_some() || r.claims.is_some()
                    };
                    if container.resources.as_ref().is_some_and(counts) {
                        containers.push(container.into());
                    }
                }
                Ok(Containers(containers))
            }
        }
        deserializer.deserialize_any(List)
    }
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
            assert_eq!(pod(text).unwrap().metadata, ObjectMeta::default(), "{text}");
        }
        for text in [
            "[]",
            r#"{"spec":{"containers":{}}}"#,
            r#"{"spec":{"priority":"1"}}"#,
        ] {
            assert!(pod(text).is_err(), "{text}");
        }
    }
}
