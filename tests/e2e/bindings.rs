//! Bindings of offers.

use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tautline_api::constraint::{ConstraintPolicyBinding, ConstraintPolicyOffer};
use tautline_tests::{PATIENCE, eventually, objects, workloads};

use crate::governed_cluster::{GovernedCluster, RULE, compliance_of};

fn targets(binding: &ConstraintPolicyBinding) -> Vec<String> {
    let target = |(name, t): (&String, &tautline_api::constraint::Reference)| {
        format!(
            "{name}={}:{}:{}:{}",
            t.namespace, t.api_version, t.kind, t.name
        )
    };
    binding.spec.targets.iter().map(target).collect()
}

async fn ready_of(world: &GovernedCluster, offer: &str, text: &str) {
    let offers: Api<ConstraintPolicyOffer> = Api::namespaced(world.client().clone(), "default");
    let condition = async || {
        let found = offers.get(offer).await.ok()?;
        let status = found.status?;
        let ready = status.conditions.first()?;
        // Of an offer that cannot be read the version before counts.
        let is_current =
            status.observed_generation == found.metadata.generation || ready.reason == "Invalid";
        let shown = format!("{}: {}: {}", ready.status, ready.reason, ready.message);
        (is_current && shown.contains(text)).then_some(())
    };
    let what = format!("the offer {offer} says {text}");
    eventually(&what, PATIENCE, condition, async || {
        let status = workloads::offer_status(world.client(), "default", offer).await;
        format!("{status:?}\n{}", world.state(offer).await)
    })
    .await;
}

/// A target of an offer that selects by the label app.
fn target(name: &str, kind: &str, api_version: &str, app: &str) -> serde_json::Value {
    json!({"name": name, "kind": kind, "apiVersion": api_version,
           "labelSelector": {"matchLabels": {"app": app}}})
}

/// A binding as Turnbuckle makes it: its owner is no controller.
fn of_turnbuckle(name: &str, owner: &str) -> serde_json::Value {
    let reference = |name: &str| json!({"cluster": "", "namespace": "default", "apiVersion": "v1", "kind": "Pod", "name": name});
    json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyBinding",
        "metadata": {"name": name, "namespace": "default",
            "labels": {"constraint.ciena.io/constraintPolicyOffer": "gold-offer"},
            "ownerReferences": [{"apiVersion": "constraint.ciena.com/v1alpha1",
                "kind": "ConstraintPolicyOffer", "name": "gold-offer", "uid": owner}]},
        "spec": {"offer": "gold-offer", "targets": {
            "source": reference("client"), "destination": reference("server")}}})
}

#[tokio::test]
async fn controller_takes_over_the_bindings_of_turnbuckle() {
    let mut world = GovernedCluster::start(&[("n1", 1)], &[]).await.unwrap();
    let client = world.client().clone();
    world.controllers[0].process.kill();
    for (name, app) in [("client", "hello-client"), ("server", "hello-server")] {
        objects::pod(&client, "default", name, app).await.unwrap();
    }
    let spec = json!({"targets": [target("source", "Pod", "v1", "hello-client"),
                                  target("destination", "Pod", "v1", "hello-server")],
                      "policies": [RULE], "period": "1s"});
    workloads::offer(&client, "default", "gold-offer", spec)
        .await
        .unwrap();
    let offers: Api<ConstraintPolicyOffer> = Api::default_namespaced(client.clone());
    let owner = offers.get("gold-offer").await.unwrap().uid().unwrap();
    let needed = of_turnbuckle("gold-offer-86cd9f9ddf", &owner);
    let mut unlabelled = of_turnbuckle("gold-offer-mine", &owner);
    unlabelled["metadata"]["labels"] = json!({});
    for binding in [needed, of_turnbuckle("gold-offer-old", &owner), unlabelled] {
        objects::apply_one(&client, binding).await.unwrap();
    }
    let bindings: Api<ConstraintPolicyBinding> = Api::default_namespaced(client.clone());
    let before = bindings.get("gold-offer-86cd9f9ddf").await.unwrap().uid();

    world.controllers[0].restart().await.unwrap();
    // The one that is not needed goes; the one without the label is not the controller's.
    let names = ["gold-offer-86cd9f9ddf", "gold-offer-mine"];
    let left = |b: &ConstraintPolicyBinding| names.contains(&&*b.name_any());
    world
        .wait_for_bindings("gold-offer", 2, "the old one is deleted", left)
        .await;
    let condition = async || {
        let binding = bindings.get("gold-offer-86cd9f9ddf").await.ok()?;
        (compliance_of(&binding) == "Compliant").then_some(binding)
    };
    let after = eventually("it is evaluated", PATIENCE, condition, async || {
        world.state("gold-offer").await
    })
    .await;
    assert_eq!(after.uid(), before, "the same object");
    let counted = async || {
        let status = workloads::offer_status(&client, "default", "gold-offer").await;
        (status.compliant_binding_count == 1).then_some(status.binding_count)
    };
    let count = eventually("the offer counts", PATIENCE, counted, async || {
        world.state("gold-offer").await
    })
    .await;
    assert_eq!(count, 1, "by its selector, without gold-offer-mine");
}

#[tokio::test]
async fn controller_creates_the_bindings_of_offers() {
    let caps = ["--max-bindings=20", "--max-namespace-bindings=40"];
    let world = GovernedCluster::start(&[("n1", 1), ("n2", 2)], &caps)
        .await
        .unwrap();
    let client = world.client();
    // The case of ciena/turnbuckle's own test: one client, one server.
    for (name, app) in [
        ("client", "hello-client"),
        ("server", "hello-server"),
        ("sample", "x"),
    ] {
        objects::pod(client, "default", name, app).await.unwrap();
    }
    let spec = json!({"targets": [target("source", "Pod", "v1", "hello-client"),
                                  target("destination", "Pod", "v1", "hello-server")],
                      "policies": [RULE], "period": "1s"});
    workloads::offer(client, "default", "gold-offer", spec)
        .await
        .unwrap();
    world
        .wait_for_compliance("gold-offer", 1, "Compliant")
        .await;
    let one = &workloads::bindings(client, "default", "gold-offer").await[0];
    assert_eq!(one.name_any(), "gold-offer-86cd9f9ddf");
    assert_eq!(one.labels().len(), 1);
    assert_eq!(
        one.labels()["constraint.ciena.io/constraintPolicyOffer"],
        "gold-offer"
    );
    assert_eq!(
        targets(one),
        [
            "destination=default:v1:Pod:server",
            "source=default:v1:Pod:client"
        ]
    );
    let offers: Api<ConstraintPolicyOffer> = Api::default_namespaced(client.clone());
    let owner = &one.owner_references()[0];
    let gold = offers.get("gold-offer").await.unwrap();
    assert_eq!(
        (owner.uid.as_str(), owner.kind.as_str()),
        (
            gold.metadata.uid.as_deref().unwrap(),
            "ConstraintPolicyOffer"
        )
    );
    let status = one.status.clone().unwrap();
    assert_eq!(status.details[0].rule_details[0].provider, "default/judge");
    ready_of(&world, "gold-offer", "True: InStep").await;
    let counted = async || {
        let status = workloads::offer_status(client, "default", "gold-offer").await;
        let counts = (status.binding_count, status.compliant_binding_count);
        (counts == (1, 1)).then_some(status.binding_selector)
    };
    let selector = eventually("the offer counts it", PATIENCE, counted, async || {
        world.state("gold-offer").await
    })
    .await;
    assert_eq!(
        selector,
        "constraint.ciena.io/constraintPolicyOffer=gold-offer"
    );

    // Servers are added and removed; a binding deleted by hand comes back.
    objects::pod(client, "default", "server-2", "hello-server")
        .await
        .unwrap();
    world
        .wait_for_compliance("gold-offer", 2, "Compliant")
        .await;
    let bindings: Api<ConstraintPolicyBinding> = Api::default_namespaced(client.clone());
    bindings
        .delete("gold-offer-86cd9f9ddf", &DeleteParams::default())
        .await
        .unwrap();
    world
        .wait_for_compliance("gold-offer", 2, "Compliant")
        .await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(client.clone());
    pods.delete("server", &DeleteParams::default())
        .await
        .unwrap();
    let left = world
        .wait_for_bindings("gold-offer", 1, "the other's", |_| true)
        .await;
    assert!(targets(&left[0])[0].ends_with("server-2"));
    pods.delete("server-2", &DeleteParams::default())
        .await
        .unwrap();
    world
        .wait_for_bindings("gold-offer", 0, "no server, no binding", |_| true)
        .await;
    ready_of(
        &world,
        "gold-offer",
        "True: NothingSelected: target destination selects nothing",
    )
    .await;

    cap(&world).await;
    permutations(&world).await;
    conditions(&world).await;
    kinds(&world).await;

    // The offer is deleted, and its bindings with it.
    world.offer("short", json!({})).await;
    objects::pod(client, "default", "short", "short")
        .await
        .unwrap();
    world.wait_for_compliance("short", 1, "Compliant").await;
    offers
        .delete("short", &DeleteParams::default())
        .await
        .unwrap();
    world
        .wait_for_bindings("short", 0, "garbage collected", |_| true)
        .await;
}

/// Five by five with a cap of twenty.
async fn cap(world: &GovernedCluster) {
    let client = world.client();
    for i in 0..5 {
        for app in ["a", "b"] {
            objects::pod(client, "default", &format!("{app}-{i}"), app)
                .await
                .unwrap();
        }
    }
    let spec = json!({"targets": [target("x", "Pod", "v1", "a"), target("y", "Pod", "v1", "b")],
                      "policies": [RULE], "period": "1s"});
    workloads::offer(client, "default", "many", spec)
        .await
        .unwrap();
    world.wait_for_compliance("many", 20, "Compliant").await;
    ready_of(
        world,
        "many",
        "False: CapExceeded: the targets make 25 bindings, and only the first 20 exist",
    )
    .await;
    world
        .wait_for_event("many", "CapExceeded: the targets make 25 bindings")
        .await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(client.clone());
    pods.delete("b-4", &DeleteParams::default()).await.unwrap();
    ready_of(world, "many", "True: InStep").await;
    world.wait_for_compliance("many", 20, "Compliant").await;

    // The offer is created again under its name, with all its bindings.
    let offers: Api<ConstraintPolicyOffer> = Api::default_namespaced(client.clone());
    let old = offers.get("many").await.unwrap();
    offers
        .delete("many", &DeleteParams::default())
        .await
        .unwrap();
    let spec = serde_json::to_value(&old.spec).unwrap();
    workloads::offer(client, "default", "many", spec)
        .await
        .unwrap();
    let uid = offers.get("many").await.unwrap().metadata.uid.unwrap();
    let stands = |b: &ConstraintPolicyBinding| {
        b.owner_references()[0].uid == uid && compliance_of(b) == "Compliant"
    };
    world
        .wait_for_bindings("many", 20, "of the new offer", stands)
        .await;
}

/// Eight targets of one selector over four pods, beside the twenty bindings of another offer.
async fn permutations(world: &GovernedCluster) {
    let client = world.client();
    for i in 0..4 {
        let name = format!("e-{i}");
        objects::pod(client, "default", &name, "e").await.unwrap();
    }
    let spec = |count: usize| {
        let targets = (0..count).map(|i| target(&format!("t{i}"), "Pod", "v1", "e"));
        json!({"targets": targets.collect::<Vec<_>>(), "policies": [RULE], "period": "1s"})
    };
    workloads::offer(client, "default", "pairs", spec(2))
        .await
        .unwrap();
    // Each pair of four pods once, and no pod with itself.
    world.wait_for_compliance("pairs", 6, "Compliant").await;
    ready_of(world, "pairs", "True: InStep").await;
    workloads::offer(client, "default", "tuples", spec(8))
        .await
        .unwrap();
    let text = "False: NamespaceCapExceeded: the targets make 161 bindings, and only the first 14 \
                exist: the offers of a namespace may have 40";
    ready_of(world, "tuples", text).await;
    world.wait_for_compliance("tuples", 14, "Compliant").await;
    let metric = "tautline_controller_bindings_withheld{bound=\"namespace\"}";
    world.wait_for_metric(metric, 147.0).await;
    // The older offers keep theirs.
    world.wait_for_compliance("pairs", 6, "Compliant").await;
    world.wait_for_compliance("many", 20, "Compliant").await;
    let offers: Api<ConstraintPolicyOffer> = Api::default_namespaced(client.clone());
    for name in ["pairs", "tuples"] {
        let deleted = offers.delete(name, &DeleteParams::default()).await;
        deleted.unwrap();
        world
            .wait_for_bindings(name, 0, "garbage collected", |_| true)
            .await;
    }
}

/// The offer's condition names a missing object, and recovers once it exists.
async fn conditions(world: &GovernedCluster) {
    let client = world.client();
    objects::pod(client, "default", "c", "c").await.unwrap();
    let patch = |spec: serde_json::Value| Patch::Merge(json!({"spec": spec}));
    world.offer("c", json!({"policies": ["later"]})).await;
    ready_of(
        world,
        "c",
        "False: PolicyMissing: ConstraintPolicy later does not exist",
    )
    .await;
    world.wait_for_compliance("c", 1, "Error").await;
    let late = json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicy",
        "metadata": {"name": "later", "namespace": "default"}, "spec": {"rules": [{"name": RULE}]}});
    objects::apply_one(client, late).await.unwrap();
    world.wait_for_compliance("c", 1, "Compliant").await;
    ready_of(world, "c", "True: InStep").await;

    // A relabelled provider is called at once, with any period.
    let offers: Api<ConstraintPolicyOffer> = Api::default_namespaced(client.clone());
    let params = PatchParams::default();
    offers
        .patch("c", &params, &patch(json!({"period": "1h"})))
        .await
        .unwrap();
    let services: Api<k8s_openapi::api::core::v1::Service> =
        Api::default_namespaced(client.clone());
    let label = |value: &str| {
        Patch::Merge(
            json!({"metadata": {"labels": {"constraint.ciena.com/constraint-near": value}}}),
        )
    };
    services
        .patch("judge", &params, &label("off"))
        .await
        .unwrap();
    let all = world.wait_for_bindings("c", 1, "NoProvider", |b| {
        let reason = b.status.as_ref().map(|s| s.first_reason.clone());
        reason.is_some_and(|r| r.starts_with("NoProvider: "))
    });
    assert_eq!(compliance_of(&all.await[0]), "Error");
    services
        .patch("judge", &params, &label("enabled"))
        .await
        .unwrap();
    world.wait_for_compliance("c", 1, "Compliant").await;

    // A selector that is invalid but accepted by the schema.
    let odd = json!([{"kind": "Pod", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}}]);
    offers
        .patch("c", &params, &patch(json!({"targets": odd})))
        .await
        .unwrap();
    ready_of(
        world,
        "c",
        "False: Invalid: spec.targets[0].labelSelector.matchExpressions[0]",
    )
    .await;
    // Its bindings stay until the offer is corrected.
    world.wait_for_compliance("c", 1, "Compliant").await;
}

/// Endpoints by name, and a kind whose CRD comes later.
async fn kinds(world: &GovernedCluster) {
    let client = world.client();
    objects::pod(client, "default", "d", "d").await.unwrap();
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "db", "labels": {"app": "db"}},
        "spec": {"selector": {"app": "d"}, "ports": [{"port": 80}]}});
    objects::apply_one(client, service).await.unwrap();
    let legacy = json!({"apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "old", "labels": {"app": "db"}}});
    objects::apply_one(client, legacy).await.unwrap();
    let spec = json!({"targets": [target("pod", "Pod", "v1", "d"), target("peer", "Endpoint", "v1", "db")],
                      "policies": [RULE], "period": "1s"});
    workloads::offer(client, "default", "ends", spec)
        .await
        .unwrap();
    let all = world
        .wait_for_bindings("ends", 2, "one for each", |_| true)
        .await;
    let mut peers: Vec<String> = all.iter().map(|b| targets(b)[0].clone()).collect();
    peers.sort();
    assert_eq!(
        peers,
        [
            "peer=default:v1:Endpoints:db",
            "peer=default:v1:Endpoints:old"
        ]
    );

    let spec = json!({"targets": [target("pod", "Pod", "v1", "d"), target("where", "Cluster", "fleet.example.com/v1", "fleet")],
                      "policies": [RULE], "period": "1s"});
    workloads::offer(client, "default", "fleet", spec)
        .await
        .unwrap();
    ready_of(
        world,
        "fleet",
        "False: KindNotServed: target where: fleet.example.com/v1 Cluster cannot be watched",
    )
    .await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "fleet", "labels": {"tautline.io/aggregate-to-controller": "true"}},
        "rules": [{"apiGroups": ["fleet.example.com"], "resources": ["clusters"], "verbs": ["get", "list", "watch"]}]});
    objects::apply_one(client, role).await.unwrap();
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusters.fleet.example.com"},
        "spec": {"group": "fleet.example.com", "scope": "Namespaced",
                 "names": {"kind": "Cluster", "plural": "clusters", "singular": "cluster"},
                 "versions": [{"name": "v1", "served": true, "storage": true,
                               "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    objects::apply_one(client, crd).await.unwrap();
    let edge = json!({"apiVersion": "fleet.example.com/v1", "kind": "Cluster",
        "metadata": {"name": "edge-1", "namespace": "default", "labels": {"app": "fleet"}}});
    objects::apply_one(client, edge).await.unwrap();
    let all = world
        .wait_for_bindings("fleet", 1, "the CRD has come", |_| true)
        .await;
    assert_eq!(
        targets(&all[0]),
        [
            "pod=default:v1:Pod:d",
            "where=default:fleet.example.com/v1:Cluster:edge-1"
        ]
    );
    ready_of(world, "fleet", "True: InStep").await;
}
