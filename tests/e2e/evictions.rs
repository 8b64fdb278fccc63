//! Actions on violations, under the real scheduler, controller manager and Eviction API.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};
use tautline_api::constraint::ConstraintPolicyOffer;
use tautline_tests::{PATIENCE, eventually, objects, workloads};

use crate::governed_cluster::{GovernedCluster, compliance_of, for_a_while};

/// The nodes of the pods of `app` that are ready.
async fn ready_on(world: &GovernedCluster, app: &str) -> Vec<String> {
    let pods = workloads::pods_of(world.client(), "default", app).await;
    pods.into_iter()
        .filter(|p| {
            let conditions = p.status.as_ref().and_then(|s| s.conditions.as_ref());
            conditions.is_some_and(|c| c.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
        })
        .filter_map(|p| p.spec?.node_name)
        .collect()
}

async fn names(world: &GovernedCluster, app: &str) -> BTreeSet<String> {
    let pods = workloads::pods_of(world.client(), "default", app).await;
    pods.into_iter().filter_map(|p| p.metadata.name).collect()
}

#[tokio::test]
async fn controller_evicts_one_pod_at_a_time_after_the_grace() {
    let nodes = [("n1", 1), ("n2", 5), ("n3", 9)];
    let world = GovernedCluster::start(&nodes, &["--eviction-cool-down=1s"])
        .await
        .unwrap();
    world
        .offer("web", json!({"grace": "4s", "violationPolicy": "Evict"}))
        .await;
    // Two offers of the same pods, each with its own cool-down.
    let too = json!({"grace": "4s", "violationPolicy": "Evict", "targets": [
        {"kind": "Pod", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    world.offer("too", too).await;
    world.deployment("web", 3).await;
    world.wait_for_compliance("web", 3, "Compliant").await;
    world.wait_for_compliance("too", 3, "Compliant").await;
    assert_eq!(ready_on(&world, "web").await, ["n1"; 3]);
    let before = names(&world, "web").await;

    // From now on n1 is too far. No pod moves during the grace.
    let broken = Instant::now();
    world.judge.set(&[("n1", -1), ("n2", 5), ("n3", 9)]);
    world.wait_for_compliance("web", 3, "Limit").await;
    let condition = async || (names(&world, "web").await != before).then_some(());
    eventually("a pod is evicted", PATIENCE, condition, async || {
        world.state("web").await
    })
    .await;
    let after = broken.elapsed();
    assert!(after >= Duration::from_secs(4), "evicted after {after:?}");
    println!("first eviction {after:?} after the limit broke, grace 4s");

    // One after the other, never two down at once, until all are on allowed nodes.
    let fewest = AtomicUsize::new(3);
    let condition = async || {
        let on = ready_on(&world, "web").await;
        fewest.fetch_min(on.len(), Ordering::Relaxed);
        (on == ["n2"; 3]).then_some(())
    };
    eventually("all pods are on n2", PATIENCE, condition, async || {
        world.state("web").await
    })
    .await;
    let fewest = fewest.into_inner();
    assert!(fewest >= 2, "{fewest} of 3 pods were up");
    world.wait_for_compliance("web", 3, "Compliant").await;
    let condition = async || {
        let bindings = workloads::bindings(world.client(), "default", "web").await;
        let targets = bindings.iter().flat_map(|b| b.spec.targets.values());
        let bound: BTreeSet<String> = targets.map(|t| t.name.clone()).collect();
        let status = workloads::offer_status(world.client(), "default", "web").await;
        (bound == names(&world, "web").await && status.binding_count == 3).then_some(())
    };
    eventually(
        "the bindings and their count follow",
        PATIENCE,
        condition,
        async || world.state("web").await,
    )
    .await;
    let evicted = "tautline_controller_evictions_total{outcome=\"Evicted\"}";
    world.controllers[0].wait_for_metric(evicted, 3.0).await;
    let condition = async || {
        let web = workloads::offer_status(world.client(), "default", "web").await;
        let too = workloads::offer_status(world.client(), "default", "too").await;
        web.last_eviction.or(too.last_eviction)
    };
    let last = eventually(
        "an offer has its last eviction",
        PATIENCE,
        condition,
        async || world.state("web").await,
    )
    .await;
    assert_eq!(last.node, "n1");
    let offers: Api<ConstraintPolicyOffer> = Api::default_namespaced(world.client().clone());
    offers
        .delete("too", &DeleteParams::default())
        .await
        .unwrap();
    world
        .wait_for_bindings("too", 0, "the offer is gone", |_| true)
        .await;
    let (_, decisions) = world.controllers[0].admin("/decisions").await.unwrap();
    assert!(
        decisions.contains("n2 would keep to every rule"),
        "{decisions}"
    );

    budget(&world).await;
    no_better_node(&world).await;
}

/// A disruption budget blocks an eviction, and allows it later.
async fn budget(world: &GovernedCluster) {
    workloads::pdb(world.client(), "default", "web", "web", 3)
        .await
        .unwrap();
    let before = names(world, "web").await;
    world.judge.set(&[("n1", -1), ("n2", -1), ("n3", 9)]);
    let refused = "tautline_controller_evictions_total{outcome=\"DisruptionBudget\"}";
    world.wait_for_metric(refused, 1.0).await;
    let bindings = workloads::bindings(world.client(), "default", "web").await;
    let events = async || {
        let mut all = String::new();
        for b in &bindings {
            let name = b.metadata.name.clone().unwrap_or_default();
            all += &tautline_tests::objects::events(world.client(), "default", &name).await;
        }
        all
    };
    let condition = async || {
        events()
            .await
            .contains("DisruptionBudget: pod")
            .then_some(())
    };
    eventually("an event names the budget", PATIENCE, condition, events).await;
    assert_eq!(names(world, "web").await, before);
    workloads::pdb(world.client(), "default", "web", "web", 2)
        .await
        .unwrap();
    let condition = async || (ready_on(world, "web").await == ["n3"; 3]).then_some(());
    eventually(
        "the pods move when the budget allows",
        PATIENCE * 2,
        condition,
        async || world.state("web").await,
    )
    .await;
    world.wait_for_compliance("web", 3, "Compliant").await;
}

/// A pod without a better node stays.
async fn no_better_node(world: &GovernedCluster) {
    let before = names(world, "web").await;
    world.judge.set(&[("n1", -1), ("n2", -1), ("n3", -1)]);
    world.wait_for_compliance("web", 3, "Violation").await;
    let refused = "tautline_controller_evictions_total{outcome=\"NoBetterNode\"}";
    world.wait_for_metric(refused, 3.0).await;
    let binding = &workloads::bindings(world.client(), "default", "web").await[0];
    let name = binding.metadata.name.clone().unwrap();
    world
        .wait_for_event(
            &name,
            "NoBetterNode: target default: none of the 2 other nodes that fit the pod is within the \
             rules: 2 near/",
        )
        .await;
    assert_eq!(names(world, "web").await, before);
}

#[tokio::test]
async fn controller_keeps_pods_that_must_not_move() {
    let nodes = [("n1", 1), ("n2", 5)];
    let mut world = GovernedCluster::start(&nodes, &["--eviction-cool-down=0s"])
        .await
        .unwrap();
    // Each iteration below takes two periods of 1 s, several times that on a busy machine.
    let evict = json!({"grace": "10s", "violationPolicy": "Evict"});
    world.offer("flap", evict).await;
    world
        .offer("quiet", json!({"violationPolicy": "Ignore"}))
        .await;
    world
        .offer("mediated", json!({"violationPolicy": "Mediate"}))
        .await;
    world
        .offer("bare", json!({"violationPolicy": "Evict"}))
        .await;
    for app in ["flap", "quiet", "mediated"] {
        world.deployment(app, 1).await;
    }
    for object in local_disk() {
        objects::apply_one(world.client(), object).await.unwrap();
    }
    for (app, _, pod) in pods_that_stay() {
        world.offer(app, json!({"violationPolicy": "Evict"})).await;
        objects::apply_one(world.client(), pod).await.unwrap();
    }
    tautline_tests::objects::pod(world.client(), "default", "bare", "bare")
        .await
        .unwrap();
    for app in ["flap", "quiet", "mediated", "bare"] {
        world.wait_for_compliance(app, 1, "Compliant").await;
    }
    let before = names(&world, "flap").await;

    // Changes back and forth, faster than the grace. From the fifth on the binding backs off.
    for i in 0..4 {
        let cost = if i % 2 == 0 { -1 } else { 1 };
        world.judge.set(&[("n1", cost), ("n2", 5)]);
        let seen = world.judge.evaluations();
        let condition = async || (world.judge.evaluations() >= seen + 16).then_some(());
        eventually("two evaluations each", PATIENCE, condition, async || {
            world.state("flap").await
        })
        .await;
    }
    assert_eq!(
        names(&world, "flap").await,
        before,
        "flapping evicts nothing"
    );

    // Permanently violated: with Ignore it is only reported, with Mediate it waits for an underlay,
    // and a pod that no controller would recreate stays.
    world.judge.set(&[("n1", -1), ("n2", 5)]);
    for app in ["quiet", "mediated", "bare"] {
        world.wait_for_compliance(app, 1, "Violation").await;
    }
    let binding = async |app: &str| {
        let all = workloads::bindings(world.client(), "default", app).await;
        all[0].metadata.name.clone().unwrap()
    };
    world
        .wait_for_event(&binding("quiet").await, "Violation: ")
        .await;
    world.wait_for_event("mediated", "NoUnderlay: ").await;
    world
        .wait_for_event(&binding("bare").await, "Unmanaged: ")
        .await;
    stays(&world).await;
    let condition = async || (names(&world, "flap").await != before).then_some(());
    eventually(
        "the permanently violated pod moves",
        PATIENCE,
        condition,
        async || world.state("flap").await,
    )
    .await;
    world.wait_for_compliance("flap", 1, "Compliant").await;

    // The provider dies: Error, and nothing moves.
    let flap = names(&world, "flap").await;
    let port = world.provider.address.port();
    let config = tautline_sdk::Config {
        listen: ([127, 0, 0, 1], port).into(),
        ..tautline_sdk::testkit::loopback()
    };
    let idle = tautline_sdk::testkit::start(world.judge.clone())
        .await
        .unwrap();
    std::mem::replace(&mut world.provider, idle).stop().await;
    for app in ["flap", "quiet"] {
        world.wait_for_compliance(app, 1, "Error").await;
    }
    for_a_while(Duration::from_secs(5), async || {
        assert_eq!(names(&world, "flap").await, flap);
    })
    .await;
    world.provider = tautline_sdk::testkit::start_with(world.judge.clone(), config)
        .await
        .unwrap();
    world.wait_for_compliance("flap", 1, "Compliant").await;
    world.wait_for_compliance("quiet", 1, "Violation").await;
    for app in ["quiet", "mediated"] {
        assert_eq!(ready_on(&world, app).await, ["n1"], "{app} was left alone");
    }
    let all = workloads::bindings(world.client(), "default", "quiet").await;
    assert_eq!(compliance_of(&all[0]), "Violation");
}

/// Pods that are not evicted: the app, the event, and the pod, on `n1`.
fn pods_that_stay() -> Vec<(&'static str, &'static str, Value)> {
    let pod = |app: &str, owner: (&str, &str), more: Value| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": app, "namespace": "default", "labels": {"app": app},
                "ownerReferences": [{"apiVersion": owner.0, "kind": owner.1, "name": "owner",
                                     "uid": format!("uid-of-{app}"), "controller": true}]},
            "spec": {"nodeName": "n1", "automountServiceAccountToken": false,
                     "containers": [{"name": "main", "image": "example.com/app:1"}]},
        });
        merge(&mut pod, &more);
        pod
    };
    // No controller of the cluster knows these owners, so none deletes the pods.
    let widget = ("example.com/v1", "Widget");
    let set = ("apps.kruise.io/v1alpha1", "CloneSet");
    let jobset = json!({"metadata": {"labels": {"jobset.sigs.k8s.io/jobset-name": "train"}}});
    let pinned = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let cache = json!({"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}});
    let nowhere =
        "NoBetterNode: target default: no other node fits the pod by Kubernetes' own rules: ";
    let disk = json!({"spec": {"volumes": [
        {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]}});
    let racks = json!({"spec": {"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "example.com/rack", "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchLabels": {"app": "racks"}}}]}});
    let beside = json!({"spec": {"affinity": {"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname",
             "labelSelector": {"matchLabels": {"app": "disk"}}}]}}}});
    vec![
        ("disk", nowhere, pod("disk", set, disk)),
        ("racks", nowhere, pod("racks", set, racks)),
        ("beside", nowhere, pod("beside", set, beside)),
        (
            "widget",
            "UnknownOwner: target default: pod default/widget belongs to Widget owner \
             (example.com/v1): ",
            pod("widget", widget, json!({})),
        ),
        (
            "jobset",
            "GroupMember: target default: pod default/jobset belongs to JobSet train: ",
            pod("jobset", set, jobset),
        ),
        (
            "pinned",
            "Protected: target default: pod default/pinned has the annotation \
             karpenter.sh/do-not-disrupt: ",
            pod("pinned", set, pinned),
        ),
        (
            "cache",
            "LocalStorage: target default: pod default/cache has local storage, which it would \
             lose: volume cache (emptyDir); ",
            pod("cache", set, cache),
        ),
    ]
}

/// A volume that only `n1` can use, and its claim.
fn local_disk() -> [Value; 2] {
    let terms = json!([{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]);
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/disk"}, "claimRef": {"namespace": "default", "name": "disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk", "namespace": "default"},
        "spec": {"storageClassName": "", "volumeName": "disk", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}});
    [volume, claim]
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Each refusal names the pod, and its owner, annotation or volumes.
async fn stays(world: &GovernedCluster) {
    for (app, event, _) in pods_that_stay() {
        let bindings = workloads::bindings(world.client(), "default", app).await;
        let name = bindings[0].metadata.name.clone().unwrap();
        world.wait_for_event(&name, event).await;
        assert_eq!(names(world, app).await, BTreeSet::from([app.to_owned()]));
    }
}

/// Two pods of one group, of which one binding is violated; a budget at first keeps one of them.
#[tokio::test]
async fn controller_evicts_a_group_as_a_whole() {
    let nodes = [("n1", 1), ("n2", 5)];
    let world = GovernedCluster::start(&nodes, &["--eviction-cool-down=0s"])
        .await
        .unwrap();
    let evict = json!({"violationPolicy": "Evict", "evictGroups": true, "targets": [
        {"kind": "Pod", "labelSelector": {"matchLabels": {"rank": "0"}}}]});
    world.offer("train", evict).await;
    for rank in ["0", "1"] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("train-{rank}"), "namespace": "default",
                "labels": {"app": "train", "rank": rank, "jobset.sigs.k8s.io/jobset-name": "train"},
                "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Widget", "name": "w",
                                     "uid": "uid-of-w", "controller": true}]},
            "spec": {"nodeName": "n1", "automountServiceAccountToken": false,
                     "containers": [{"name": "main", "image": "example.com/app:1"}]},
        });
        objects::apply_one(world.client(), pod).await.unwrap();
    }
    // `minAvailable` as a number: a percentage would need the owner's scale.
    workloads::pdb(world.client(), "default", "train", "train", 1)
        .await
        .unwrap();
    world.wait_for_compliance("train", 1, "Compliant").await;
    let binding = workloads::bindings(world.client(), "default", "train").await;
    let binding = binding[0].metadata.name.clone().unwrap();
    world.judge.set(&[("n1", -1), ("n2", 5)]);
    let event = "DisruptionBudget: PodDisruptionBudget train allows ";
    world.wait_for_event(&binding, event).await;
    assert_eq!(names(&world, "train").await.len(), 2);
    workloads::pdb(world.client(), "default", "train", "train", 0)
        .await
        .unwrap();
    let condition = async || names(&world, "train").await.is_empty().then_some(());
    eventually("both pods go", PATIENCE, condition, async || {
        world.state("train").await
    })
    .await;
    let condition = async || {
        let status = workloads::offer_status(world.client(), "default", "train").await;
        status.last_eviction.map(|e| e.group)
    };
    let group = eventually(
        "the offer has its eviction",
        PATIENCE,
        condition,
        async || world.state("train").await,
    )
    .await;
    assert_eq!(group.as_deref(), Some("2 pods of JobSet train"));
}

#[tokio::test]
async fn dry_run_reports_evictions_and_makes_none() {
    let nodes = [("n1", 1), ("n2", 5)];
    let world = GovernedCluster::start(&nodes, &["--dry-run"])
        .await
        .unwrap();
    world
        .offer("web", json!({"violationPolicy": "Evict"}))
        .await;
    world.deployment("web", 2).await;
    world.wait_for_compliance("web", 2, "Compliant").await;
    let before = names(&world, "web").await;
    world.judge.set(&[("n1", -1), ("n2", 5)]);
    let metric = "tautline_controller_evictions_total{outcome=\"WouldEvict\"}";
    world.wait_for_metric(metric, 1.0).await;
    for_a_while(Duration::from_secs(3), async || {
        assert_eq!(names(&world, "web").await, before);
    })
    .await;
    let (_, decisions) = world.controllers[0].admin("/decisions").await.unwrap();
    assert!(
        decisions.contains("would evict pod default/web-"),
        "{decisions}"
    );
    let status = workloads::offer_status(world.client(), "default", "web").await;
    assert_eq!(status.last_eviction, None);
}
