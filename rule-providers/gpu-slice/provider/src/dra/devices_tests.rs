use std::{sync::Arc, time::Duration};

use tautline_core::{
    index::Object,
    model::{self, AffinityTerm},
};
use tautline_gpu_placement::dra::{Access, Claim, Class, Device, ExactRequest, PoolId, Slice};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{
    Allocator, Compliance, Container, ContainerKind, CostAnswer, CostRequest, EvaluationRequest,
    Reference, ReservationRequest, Rule, RuleProvider, Workload,
};

use crate::{Config, GpuSlice};

fn provider() -> GpuSlice {
    let store = ClusterStore::default();
    for name in ["has", "none"] {
        store.apply(Object::Node(model::Node {
            name: name.into(),
            ..model::Node::default()
        }));
    }
    let provider = GpuSlice::new(store, Config::default());
    provider.set_slices(vec![slice(Device {
        name: "gpu-0".into(),
        ..Device::default()
    })]);
    provider.set_classes(vec![Class {
        name: "gpu".into(),
        selectors: vec!["device.driver == 'gpu.example.com'".into()],
        ..Class::default()
    }]);
    provider.set_claims(Vec::new());
    provider
}

/// The slice of the node `has`, with one device.
fn slice(device: Device) -> Slice {
    Slice {
        name: "has".into(),
        id: PoolId {
            driver: "gpu.example.com".into(),
            pool: "has".into(),
        },
        generation: 1,
        slices: 1,
        access: Access::Node("has".into()),
        counters: Vec::new(),
        devices: vec![device],
    }
}

fn claim(name: &str, owner: Option<&str>) -> Claim {
    Claim {
        namespace: "ml".into(),
        name: name.into(),
        requests: vec![vec![ExactRequest {
            class: "gpu".into(),
            ..ExactRequest::default()
        }]],
        owner: owner.map(Into::into),
        ..Claim::default()
    }
}

fn question(claims: &[&str]) -> CostRequest {
    CostRequest {
        source: Reference::pod("ml", "new"),
        eligible_nodes: vec!["has".into(), "none".into()],
        workload: Some(Workload {
            uid: "u".into(),
            resource_claims: claims.iter().map(|name| (*name).into()).collect(),
            ..Workload::default()
        }),
        ..CostRequest::default()
    }
}

async fn usable(provider: &GpuSlice, claims: &[&str]) -> Vec<String> {
    let answer = provider.endpoint_cost(question(claims)).await.unwrap();
    names(&answer)
}

fn names(answer: &CostAnswer) -> Vec<String> {
    let nodes = answer.nodes();
    let usable = nodes.iter().filter(|n| n.cost >= 0);
    usable.map(|n| n.node.to_string()).collect()
}

#[tokio::test]
async fn claims_identify_an_unknown_pod() {
    let provider = provider();
    provider.set_claims(vec![claim("named", None), claim("made", Some("u"))]);
    // No node has a device for each of the two claims.
    assert_eq!(usable(&provider, &["named"]).await, [""; 0]);
    assert_eq!(usable(&provider, &[]).await, ["has"]);
    provider.set_claims(vec![claim("named", None)]);
    assert_eq!(usable(&provider, &["named"]).await, ["has"]);
    assert_eq!(usable(&provider, &[]).await, ["has", "none"]);
}

#[tokio::test]
async fn pods_with_claims_are_asked_for_one_by_one() {
    let provider = GpuSlice::new(ClusterStore::default(), Config::default());
    provider.set_claims(Vec::new());
    let of_any = provider.endpoint_cost(question(&[])).await.unwrap();
    let of_pod = provider.endpoint_cost(question(&["late"])).await.unwrap();
    assert_eq!((of_any.per_pod, of_pod.per_pod), (false, true));
}

#[tokio::test(start_paused = true)]
async fn answer_waits_briefly_for_a_late_claim() {
    let provider = Arc::new(provider());
    let asking = tokio::spawn({
        let provider = Arc::clone(&provider);
        async move { usable(&provider, &["late"]).await }
    });
    tokio::task::yield_now().await;
    provider.set_claims(vec![claim("other", None)]);
    tokio::task::yield_now().await;
    assert!(!asking.is_finished());
    provider.set_claims(vec![claim("late", None)]);
    assert_eq!(asking.await.unwrap(), ["has"]);

    let before = tokio::time::Instant::now();
    assert_eq!(usable(&provider, &["never"]).await, ["has", "none"]);
    // A timer may be a millisecond late.
    assert!((50..=51).contains(&before.elapsed().as_millis()));
    let nearly_over = CostRequest {
        deadline: Some(std::time::Instant::now()),
        ..question(&["never"])
    };
    let before = tokio::time::Instant::now();
    let answer = provider.endpoint_cost(nearly_over).await.unwrap();
    assert_eq!(names(&answer), ["has", "none"]);
    assert!(before.elapsed().as_millis() <= 1);
}

const GPU: &str = "nvidia.com/gpu";

fn requests(resource: &str, units: &str, rule: &str) -> CostRequest {
    CostRequest {
        rule: Rule {
            name: "gpu-slice".into(),
            request: rule.into(),
            ..Rule::default()
        },
        workload: Some(Workload {
            uid: "u".into(),
            requests: [(resource.to_owned(), units.to_owned())].into(),
            ..Workload::default()
        }),
        eligible_nodes: ["has", "none", "plugin"].map(str::to_owned).to_vec(),
        ..question(&[])
    }
}

/// A class serves the resource where no device plugin does.
fn serving(resource: Option<&str>) -> GpuSlice {
    let provider = provider();
    let plugin = |count: i64| {
        Object::Node(model::Node {
            name: "plugin".into(),
            allocatable: [(GPU, count * 1000)].into_iter().collect(),
            ..model::Node::default()
        })
    };
    provider.store.apply(plugin(1));
    provider.set_classes(vec![Class {
        name: "gpu".into(),
        selectors: vec!["device.driver == 'gpu.example.com'".into()],
        extended_resource: resource.map(Into::into),
        ..Class::default()
    }]);
    provider
}

/// As kube-scheduler 1.36 places them (KEP-5004).
#[tokio::test]
async fn drivers_serve_extended_resources_of_their_classes() {
    let provider = serving(Some(GPU));
    let usable = async |request: CostRequest| {
        let answer = provider.endpoint_cost(request).await.unwrap();
        // Claims of others change what is free.
        assert!(answer.per_pod);
        names(&answer)
    };
    for rule in ["true", "1"] {
        assert_eq!(usable(requests(GPU, "1", rule)).await, ["has", "plugin"]);
    }
    assert_eq!(usable(requests(GPU, "2", "true")).await, [""; 0]);
    let answer = provider.endpoint_cost(requests(GPU, "1", "2")).await;
    let answer = answer.unwrap();
    let codes: Vec<_> = answer.nodes().iter().map(|n| n.code.to_owned()).collect();
    assert_eq!(codes, ["NotRequested"; 3]);
    let implicit = "deviceclass.resource.kubernetes.io/gpu";
    assert_eq!(usable(requests(implicit, "1", "true")).await, ["has"]);
    // A pod has the device.
    let mut held = claim("held", Some("other"));
    held.allocated = Some(vec![tautline_gpu_placement::dra::Allocation {
        device: tautline_gpu_placement::dra::DeviceId {
            pool: PoolId {
                driver: "gpu.example.com".into(),
                pool: "has".into(),
            },
            device: "gpu-0".into(),
        },
        admin: false,
        share: None,
        consumed: Default::default(),
        tolerations: Vec::new(),
    }]);
    provider.set_claims(vec![held]);
    assert_eq!(usable(requests(GPU, "1", "true")).await, ["plugin"]);
}

async fn usable_nodes(provider: &GpuSlice, request: CostRequest) -> Vec<String> {
    names(&provider.endpoint_cost(request).await.unwrap())
}

#[tokio::test]
async fn allocated_claims_tie_their_pods_to_nodes() {
    let provider = provider();
    let term = |node: &str| AffinityTerm {
        names: vec![(true, vec![node.into()])],
        ..AffinityTerm::default()
    };
    let held = |nodes: Option<Vec<AffinityTerm>>| Claim {
        allocated: Some(Vec::new()),
        nodes,
        ..claim("held", None)
    };
    for (nodes, want) in [
        (Some(vec![term("none")]), vec!["none"]),
        (Some(vec![term("none"), term("has")]), vec!["has", "none"]),
        (None, vec!["has", "none"]),
    ] {
        provider.set_claims(vec![held(nodes)]);
        assert_eq!(usable(&provider, &["held"]).await, want);
    }
    // A pod in the place of one that runs gets new devices for its own claims, and shares others.
    provider.store.apply(Object::Pod(model::Pod {
        namespace: "ml".into(),
        name: "new".into(),
        uid: "u".into(),
        node: Some("none".into()),
        ..model::Pod::default()
    }));
    let of_pod = |owner| Claim {
        owner,
        ..held(Some(vec![term("none")]))
    };
    provider.set_claims(vec![of_pod(None)]);
    assert_eq!(usable(&provider, &["held"]).await, ["none"]);
    provider.set_claims(vec![of_pod(Some("u".into()))]);
    assert_eq!(usable(&provider, &["held"]).await, ["has", "none"]);
    provider.set_slices(Vec::new());
    assert_eq!(usable(&provider, &["held"]).await, ["none"]);
}

#[tokio::test]
async fn allocated_claims_of_a_plan_are_taken_and_shared() {
    let provider = serving(Some(GPU));
    provider.set_claims(vec![claim("one", None), claim("two", None)]);
    let place = |uid: &str, workload: Workload, node: &str| {
        let workload = Workload {
            uid: uid.into(),
            ..workload
        };
        provider.allocate_claims(&Reference::pod("ml", uid), &workload, node);
    };
    let claiming = || Workload {
        resource_claims: vec!["one".into()],
        ..Workload::default()
    };
    // The node has no devices, so the claim stays as it is.
    place("a", claiming(), "none");
    assert_eq!(usable(&provider, &["one"]).await, ["has"]);
    place("a", claiming(), "has");
    assert_eq!(usable(&provider, &["two"]).await, [""; 0]);
    // A second pod of the claim has the same device.
    assert_eq!(usable(&provider, &["one"]).await, ["has"]);
    // An extended resource takes a device without a claim of the manifests.
    provider.set_claims(vec![claim("two", None)]);
    assert_eq!(usable(&provider, &["two"]).await, ["has"]);
    let workload = || requests(GPU, "1", "true").workload.unwrap();
    place("b", workload(), "has");
    assert_eq!(usable(&provider, &["two"]).await, [""; 0]);
    // The claim that kube-scheduler has made for a pod is all that the pod gets.
    provider.set_claims(vec![
        Claim {
            allocated: Some(Vec::new()),
            ..claim("b-extended-resources-x7k2p", Some("b"))
        },
        claim("two", None),
    ]);
    place("b", workload(), "has");
    assert_eq!(usable(&provider, &["two"]).await, ["has"]);
}

#[tokio::test]
async fn gpus_of_plugins_do_not_replace_devices_of_claims() {
    let provider = serving(Some(GPU));
    provider.set_claims(vec![claim("named", None)]);
    let mut both = requests(GPU, "1", "true");
    both.workload.as_mut().unwrap().resource_claims = vec!["named".into()];
    // Each request alone would get the one device of the node without a plugin.
    assert_eq!(usable_nodes(&provider, both.clone()).await, [""; 0]);
    provider.set_claims(vec![claim("other", None)]);
    both.workload.as_mut().unwrap().resource_claims.clear();
    assert_eq!(
        usable_nodes(&provider, both.clone()).await,
        ["has", "plugin"]
    );
    let implicit = "deviceclass.resource.kubernetes.io/gpu";
    let requested = &mut both.workload.as_mut().unwrap().requests;
    requested.insert(implicit.into(), "1".into());
    assert_eq!(usable_nodes(&provider, both.clone()).await, [""; 0]);
    // Of the two resources the class serves only one.
    let provider = serving(None);
    assert_eq!(usable_nodes(&provider, both).await, [""; 0]);
}

/// Containers have requests of their own, which may have parts of one device.
#[tokio::test]
async fn containers_share_a_device() {
    let provider = serving(Some(GPU));
    provider.set_slices(vec![slice(Device {
        name: "gpu-0".into(),
        shared: true,
        ..Device::default()
    })]);
    let with = |units: &str, containers: &[(ContainerKind, &str)]| {
        let mut request = requests(GPU, units, "true");
        let container = |(kind, units): &(ContainerKind, &str)| Container {
            kind: *kind,
            requests: [(GPU.to_owned(), (*units).to_owned())].into(),
        };
        request.workload.as_mut().unwrap().containers = containers.iter().map(container).collect();
        request
    };
    use ContainerKind::{Init, Main, Sidecar};
    for (request, want) in [
        (with("2", &[]), vec![]),
        (with("2", &[(Main, "1"), (Main, "1")]), vec!["has"]),
        (with("2", &[(Sidecar, "1"), (Main, "1")]), vec!["has"]),
        // An init container uses the devices of later containers, and has one request in addition.
        (with("2", &[(Init, "2"), (Main, "1")]), vec!["has"]),
        (with("3", &[(Init, "3"), (Main, "1")]), vec![]),
        (with("3", &[(Main, "2"), (Main, "1")]), vec![]),
        // Not all containers are known.
        (with("3", &[(Main, "1"), (Main, "1")]), vec![]),
    ] {
        assert_eq!(
            usable_nodes(&provider, request.clone()).await,
            want,
            "{request:?}"
        );
    }
}

#[tokio::test]
async fn without_a_class_only_device_plugins_serve_a_resource() {
    let provider = serving(None);
    let answer = provider.endpoint_cost(requests(GPU, "1", "true")).await;
    assert_eq!(names(&answer.unwrap()), ["plugin"]);
    provider.set_classes(Vec::new());
    let answer = provider.endpoint_cost(requests(GPU, "1", "true")).await;
    let answer = answer.unwrap();
    assert!(!answer.per_pod);
    assert_eq!(names(&answer), ["plugin"]);
}

#[tokio::test]
async fn pods_with_devices_of_drivers_bind_and_are_compliant() {
    let provider = serving(Some(GPU));
    let reserved = provider
        .reserve(ReservationRequest {
            workload: Reference::pod("ml", "new"),
            uid: "u".into(),
            node: "has".into(),
            rule: requests(GPU, "1", "true").rule,
            hold: Duration::from_secs(10),
            details: requests(GPU, "1", "true").workload,
            ..ReservationRequest::default()
        })
        .await
        .unwrap();
    assert!(reserved.annotations.is_empty());
    provider.store.apply(Object::Pod(model::Pod {
        namespace: "ml".into(),
        name: "new".into(),
        uid: "u".into(),
        node: Some("has".into()),
        requests: [(GPU, 1000)].into_iter().collect(),
        ..model::Pod::default()
    }));
    let evaluation = provider
        .evaluate(EvaluationRequest {
            targets: [("default".to_owned(), Reference::pod("ml", "new"))].into(),
            rule: requests(GPU, "1", "true").rule,
            ..EvaluationRequest::default()
        })
        .await
        .unwrap();
    assert_eq!(
        evaluation.compliance,
        Compliance::Compliant,
        "{evaluation:?}"
    );
}
