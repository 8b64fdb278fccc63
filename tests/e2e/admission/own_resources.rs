//! Our own resources: validation, warnings, defaults.

use tautline_tests::objects::{Response, post};

use super::*;

const OWN: &[&str] = &["tautline-own-resources"];
const PATH: &str = "/apis/constraint.ciena.com/v1alpha1/namespaces/default";

fn named(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": kind,
           "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

async fn offer(world: &AdmissionCluster, name: &str, spec: Value) -> Response {
    let object = named("ConstraintPolicyOffer", name, spec);
    let path = format!("{PATH}/constraintpolicyoffers");
    post(world.client(), &path, &object).await.unwrap()
}

/// Waits until the API server calls the new webhook: before that, `bad` passes.
async fn wait_until_called(world: &AdmissionCluster, bad: &Value) {
    let path = format!("{PATH}/constraintpolicyoffers?dryRun=All");
    let check = async || {
        let response = post(world.client(), &path, bad).await.ok()?;
        (response.status == 422).then_some(())
    };
    let what = "the API server calls the webhook";
    eventually(what, PATIENCE, check, async || world.state()).await;
}

/// The API server alone checks targets of other clusters, by the rules of the CRD.
async fn check_other_clusters(world: &AdmissionCluster) {
    let selector = json!({"matchLabels": {"app": "web"}});
    let web = json!({"name": "web", "kind": "Pod", "labelSelector": selector});
    let site = json!({"name": "site", "kind": "Cluster", "labelSelector": {}});
    let db = |more: Value| {
        let mut target = json!({"name": "db", "kind": "Pod", "cluster": "east"});
        let fields = more.as_object().unwrap().clone();
        target.as_object_mut().unwrap().extend(fields);
        target
    };
    let with_web = |more: Value| json!({"targets": [web, db(more)]});
    for (spec, text) in [
        (
            with_web(json!({"cluster": "East"})),
            "spec.targets[1].cluster in body should match",
        ),
        (
            with_web(json!({"cluster": ""})),
            "spec.targets[1].cluster in body should be at least 1 chars long",
        ),
        (
            with_web(json!({"kind": "Endpoint"})),
            "only pods of other clusters are selected; write kind: Pod, or remove cluster",
        ),
        (
            json!({"group": {}, "targets": [web, db(json!({"peers": "group"}))]}),
            "peers: group selects pods of this cluster; remove cluster",
        ),
        (
            with_web(json!({"apiVersion": "apps/v1"})),
            "the apiVersion of pods is v1; write it, or remove the field",
        ),
        (
            with_web(json!({"name": "web"})),
            "target names must be unique",
        ),
        (
            json!({"evict": ["db"], "targets": [web, db(json!({}))]}),
            "spec.evict must name targets of the offer whose kind is Pod, without cluster",
        ),
        (
            json!({"group": {}, "targets": [site, db(json!({}))]}),
            "spec.group needs a target of kind Pod without peers and cluster",
        ),
        (
            json!({"targets": [db(json!({}))]}),
            "all targets are of other clusters; add one without cluster",
        ),
    ] {
        let response = offer(world, "bad", spec).await;
        assert!(response.message().contains(text), "{text}: {response:?}");
        assert_eq!(response.status, 422, "{text}: {response:?}");
    }
    let in_east = db(json!({"apiVersion": "v1", "labelSelector": {}}));
    let spec = json!({"policies": ["near"], "evict": ["web"], "violationPolicy": "Evict",
                      "group": {}, "targets": [in_east, web]});
    let response = offer(world, "in-east", spec).await;
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(response.body["spec"]["targets"][0]["cluster"], "east");
    assert_eq!(
        response.warnings,
        [
            "spec.policies[0]: ConstraintPolicy near does not exist in default yet",
            "spec.targets[1] (web): selects nothing in default now",
        ]
    );
}

#[tokio::test]
async fn own_resources_are_validated_and_defaulted() {
    let world = AdmissionCluster::start(OWN, &[]).await.unwrap();
    let expression = json!({"key": "a", "operator": "Is", "values": ["b"]});
    let selector = json!({"matchExpressions": [expression]});
    let bad = json!({"targets": [{"kind": "Pod", "labelSelector": selector}]});
    wait_until_called(&world, &named("ConstraintPolicyOffer", "bad", bad.clone())).await;
    // The API server reads the mutating webhook, which sets defaults, at another time.
    let plain = json!({"policies": ["near"], "targets": [{"kind": "Pod"}]});
    let plain = named("ConstraintPolicyOffer", "plain", plain);
    let check = async || {
        let path = format!("{PATH}/constraintpolicyoffers?dryRun=All");
        let response = post(world.client(), &path, &plain).await.ok()?;
        response.body["spec"]["period"].is_string().then_some(())
    };
    let what = "defaults are set";
    eventually(what, PATIENCE, check, async || world.state()).await;

    let response = offer(&world, "bad", bad).await;
    assert_eq!(
        response.message(),
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
    let response = post(world.client(), &path, &binding).await.unwrap();
    assert!(
        response.message().contains("spec.targets: is empty"),
        "{response:?}"
    );

    check_other_clusters(&world).await;
    let good = json!({"policies": ["near"], "grace": "10m",
        "targets": [{"kind": "Pod", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let response = offer(&world, "web", good.clone()).await;
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(
        response.warnings,
        [
            "spec.policies[0]: ConstraintPolicy near does not exist in default yet",
            "spec.targets[0] (default): selects nothing in default now",
        ]
    );
    let spec = &response.body["spec"];
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
    let response = post(world.client(), &path, &policy).await.unwrap();
    assert_eq!(response.body["spec"]["rules"][0]["weight"], 1);
    assert!(
        response.warnings[0].starts_with("rule far has no provider yet"),
        "{response:?}"
    );

    objects::provider(world.client(), "default", "prober", 9, &["far"])
        .await
        .unwrap();
    objects::pod(world.client(), "default", "web-1", "web")
        .await
        .unwrap();
    // The watches deliver the objects a little later.
    let check = async || {
        let path = format!("{PATH}/constraintpolicyoffers?dryRun=All");
        let object = named("ConstraintPolicyOffer", "again", good.clone());
        let response = post(world.client(), &path, &object).await.ok()?;
        response.warnings.is_empty().then_some(())
    };
    eventually("no warning is left", PATIENCE, check, async || {
        world.state()
    })
    .await;
    world
        .wait_for_metric(
            "tautline_admission_reviews_total{handler=\"validate-constraint\",outcome=\"refuse\"",
            2.0,
        )
        .await;
}
