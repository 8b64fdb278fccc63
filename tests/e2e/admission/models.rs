//! The model registry's kinds, without Kthena: the example's objects.

use tautline_tests::objects::{Said, post};

use super::*;

const MODELS: &[&str] = &["tautline-model-registry"];
const KINDS: [(&str, &str, &str); 4] = [
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

async fn create(world: &Admitting, object: &Value, dry: bool) -> Said {
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
async fn models_are_refused_with_all_that_is_wrong_and_filled_in() {
    let world = Admitting::start(MODELS, &[]).await.unwrap();
    let client = world.client();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm"}});
    objects::apply_one(client, namespace).await.unwrap();
    for kind in &KINDS {
        objects::apply_one(client, crd(kind)).await.unwrap();
    }
    let bad = example("2-refused.yaml");
    for object in &bad {
        let check = async || {
            let said = create(&world, object, true).await;
            (said.status == 422).then_some(said)
        };
        let what = format!(
            "{} {} is refused",
            object["kind"], object["metadata"]["name"]
        );
        let said = eventually(&what, PATIENCE, check, async || world.state()).await;
        assert!(
            said.message()
                .contains("denied the request: validation failed:\n  - spec."),
            "{said:?}"
        );
    }
    let said = create(&world, &bad[0], false).await;
    assert_eq!(said.message().lines().count(), 11, "{}", said.message());

    let good = example("1-models.yaml");
    // Its policy comes after it in no file: the binding alone is refused.
    let binding = good
        .iter()
        .find(|o| o["kind"] == "AutoscalingPolicyBinding")
        .unwrap();
    let said = create(&world, binding, false).await;
    assert!(
        said.message().contains("spec.PolicyRef: Invalid value"),
        "{said:?}"
    );
    for object in &good {
        let said = create(&world, object, false).await;
        assert_eq!(said.status, 201, "{}: {}", object["kind"], said.message());
        if object["kind"] == "AutoscalingPolicy" {
            assert_eq!(
                said.body["spec"]["behavior"]["scaleDown"]["stabilizationWindow"],
                "5m"
            );
        }
    }
    // What is no model at all is answered with 400, which the API server tells.
    let mut odd = good[0].clone();
    odd["metadata"]["name"] = "odd".into();
    odd["spec"] = json!({"backends": "none"});
    let said = create(&world, &odd, false).await;
    assert!(
        said.status >= 400 && said.message().contains("failed calling webhook"),
        "{said:?}"
    );
}
