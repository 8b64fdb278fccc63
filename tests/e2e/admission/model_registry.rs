//! The model registry's kinds, without Kthena: the example's objects.

use tautline_tests::objects::{Response, post};

use super::*;

const MODELS: &[&str] = &["tautline-model-registry"];
const KINDS: [(&str, &str, &str); 5] = [
    ("registry.volcano.sh", "Model", "models"),
    (
        "registry.volcano.sh",
        "AutoscalingPolicy",
        "autoscalingpolicies",
    ),
    (
        "registry.volcano.sh",
        "AutoscalingPolicyBinding",
        "autoscalingpolicybindings",
    ),
    (
        "workload.serving.volcano.sh",
        "ModelBooster",
        "modelboosters",
    ),
    (
        "workload.serving.volcano.sh",
        "AutoscalingPolicyBinding",
        "autoscalingpolicybindings",
    ),
];

fn crd((group, kind, plural): &(&str, &str, &str)) -> Value {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": free}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": schema}]}})
}

async fn create(world: &AdmissionCluster, object: &Value, dry: bool) -> Response {
    let version = object["apiVersion"].as_str().unwrap();
    let kind = KINDS.iter().find(|k| object["kind"] == k.1).unwrap();
    let query = if dry { "?dryRun=All" } else { "" };
    let path = format!("/apis/{version}/namespaces/llm/{}{query}", kind.2);
    post(world.client(), &path, object).await.unwrap()
}

fn example(file: &str) -> Vec<Value> {
    let path = root().join("examples/registry").join(file);
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test]
async fn models_are_validated_and_defaulted() {
    let world = AdmissionCluster::start(MODELS, &[]).await.unwrap();
    let client = world.client();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm"}});
    objects::apply_one(client, namespace).await.unwrap();
    for kind in &KINDS {
        objects::apply_one(client, crd(kind)).await.unwrap();
    }
    let bad = example("2-refused.yaml");
    for object in &bad {
        let check = async || {
            let response = create(&world, object, true).await;
            (response.status == 422).then_some(response)
        };
        let what = format!(
            "{} {} is refused",
            object["kind"], object["metadata"]["name"]
        );
        let response = eventually(&what, PATIENCE, check, async || world.state()).await;
        assert!(
            response
                .message()
                .contains("denied the request: validation failed:\n  - spec."),
            "{response:?}"
        );
    }
    let response = create(&world, &bad[0], false).await;
    assert_eq!(
        response.message().lines().count(),
        11,
        "{}",
        response.message()
    );

    let good = example("1-models.yaml");
    // A binding without its policy is refused.
    let binding = good
        .iter()
        .find(|o| o["kind"] == "AutoscalingPolicyBinding")
        .unwrap();
    let response = create(&world, binding, false).await;
    assert!(
        response.message().contains("spec.PolicyRef: Invalid value"),
        "{response:?}"
    );
    for object in &good {
        let response = create(&world, object, false).await;
        assert_eq!(
            response.status,
            201,
            "{}: {}",
            object["kind"],
            response.message()
        );
        // Only models of the list form have defaults.
        if object["kind"] == "ModelBooster" {
            assert_eq!(response.body["spec"], object["spec"]);
        }
        if object["kind"] == "AutoscalingPolicy" {
            assert_eq!(
                response.body["spec"]["behavior"]["scaleDown"]["stabilizationWindow"],
                "5m"
            );
        }
    }
    // The answer to a malformed model is 400, which the API server reports.
    let mut odd = good[0].clone();
    odd["metadata"]["name"] = "odd".into();
    odd["spec"] = json!({"backends": "none"});
    let response = create(&world, &odd, false).await;
    assert!(
        response.status >= 400 && response.message().contains("failed calling webhook"),
        "{response:?}"
    );
}
