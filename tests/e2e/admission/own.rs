//! Our own kinds: refused, warned of, filled in.

use tautline_tests::objects::{Said, post};

use super::*;

const OWN: &[&str] = &["tautline-own-resources"];
const PATH: &str = "/apis/constraint.ciena.com/v1alpha1/namespaces/default";

fn named(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": kind,
           "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

async fn offer(world: &Admitting, name: &str, spec: Value) -> Said {
    let object = named("ConstraintPolicyOffer", name, spec);
    let path = format!("{PATH}/constraintpolicyoffers");
    post(world.client(), &path, &object).await.unwrap()
}

/// The API server hears of a new webhook after a moment: until then `bad` passes.
async fn asked(world: &Admitting, bad: &Value) {
    let path = format!("{PATH}/constraintpolicyoffers?dryRun=All");
    let check = async || {
        let said = post(world.client(), &path, bad).await.ok()?;
        (said.status == 422).then_some(())
    };
    let what = "the API server asks";
    eventually(what, PATIENCE, check, async || world.state()).await;
}

#[tokio::test]
async fn own_objects_are_refused_warned_of_and_filled_in() {
    let world = Admitting::start(OWN, &[]).await.unwrap();
    let expression = json!({"key": "a", "operator": "Is", "values": ["b"]});
    let selector = json!({"matchExpressions": [expression]});
    let bad = json!({"targets": [{"kind": "Pod", "labelSelector": selector}]});
    asked(&world, &named("ConstraintPolicyOffer", "bad", bad.clone())).await;
    // It hears of the mutating webhook, which sets defaults, apart from the validating one.
    let plain = json!({"policies": ["near"], "targets": [{"kind": "Pod"}]});
    let plain = named("ConstraintPolicyOffer", "plain", plain);
    let check = async || {
        let path = format!("{PATH}/constraintpolicyoffers?dryRun=All");
        let said = post(world.client(), &path, &plain).await.ok()?;
        said.body["spec"]["period"].is_string().then_some(())
    };
    let what = "defaults are set";
    eventually(what, PATIENCE, check, async || world.state()).await;

    let said = offer(&world, "bad", bad).await;
    assert_eq!(
        said.message(),
        "admission webhook \"validate.constraint.tautline.io\" denied the request: \
         ConstraintPolicyOffer default/bad: spec.targets[0].labelSelector.matchExpressions[0]: \
         operator \"Is\" is unknown; use In, NotIn, Exists or DoesNotExist"
    );
    let binding = named(
        "ConstraintPolicyBinding",
        "b",
        json!({"offer": "o", "targets": {}}),
    );
    let path = format!("{PATH}/constraintpolicybindings");
    let said = post(world.client(), &path, &binding).await.unwrap();
    assert!(
        said.message().contains("spec.targets: is empty"),
        "{said:?}"
    );

    let good = json!({"policies": ["near"], "grace": "10m",
        "targets": [{"kind": "Pod", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let said = offer(&world, "web", good.clone()).await;
    assert_eq!(said.status, 201, "{said:?}");
    assert_eq!(
        said.warnings,
        [
            "spec.policies[0]: ConstraintPolicy near does not exist in default yet",
            "spec.targets[0] (default): selects nothing in default now",
        ]
    );
    let spec = &said.body["spec"];
    assert_eq!(
        [
            &spec["period"],
            &spec["grace"],
            &spec["violationPolicy"],
            &spec["targets"][0]["name"]
        ],
        [
            &json!("1m"),
            &json!("10m"),
            &json!("Ignore"),
            &json!("default")
        ]
    );
    let policy = named(
        "ConstraintPolicy",
        "near",
        json!({"rules": [{"name": "far"}]}),
    );
    let path = format!("{PATH}/constraintpolicies");
    let said = post(world.client(), &path, &policy).await.unwrap();
    assert_eq!(said.body["spec"]["rules"][0]["weight"], 1);
    assert!(
        said.warnings[0].starts_with("rule far has no provider yet"),
        "{said:?}"
    );

    objects::provider(world.client(), "default", "prober", 9, &["far"])
        .await
        .unwrap();
    objects::pod(world.client(), "default", "web-1", "web")
        .await
        .unwrap();
    // As soon as the watches have brought them.
    let check = async || {
        let path = format!("{PATH}/constraintpolicyoffers?dryRun=All");
        let object = named("ConstraintPolicyOffer", "again", good.clone());
        let said = post(world.client(), &path, &object).await.ok()?;
        said.warnings.is_empty().then_some(())
    };
    eventually("no warning is left", PATIENCE, check, async || {
        world.state()
    })
    .await;
    world
        .metric_reaches(
            "tautline_admission_reviews_total{job=\"validate-constraint\",outcome=\"refuse\"",
            2.0,
        )
        .await;
}
