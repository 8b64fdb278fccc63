use std::{fmt::Write, sync::Arc};

use crate::{
    Console,
    source::Component,
    tests::{self, FakeSource, get, json},
};

const EXAMPLE: &str = concat!(
    include_str!("../../../../examples/gpu-slices/1-nodes.yaml"),
    "\n---\n",
    include_str!("../../../../examples/gpu-slices/3-policies.yaml"),
    "\n---\n",
    include_str!("../../../../examples/gpu-slices/4-pods.yaml"),
);

const HOSTILE: &str = "<script>alert(1)</script>";

const AGENT: &str = r#"
apiVersion: v1
kind: Node
metadata:
  name: n7
  annotations:
    tautline.io/gpu-inventory: '{"limits": "mps", "cards": [
      {"uuid": "GPU-a", "index": 0, "product": "NVIDIA-H100-80GB-HBM3", "memoryBytes": 85899345920},
      {"uuid": "GPU-c", "index": 1, "product": "NVIDIA-H100-80GB-HBM3", "memoryBytes": 85899345920,
       "fault": "Xid79"}]}'
status: {allocatable: {tautline.io/gpu-milli: "2000"}}
---
apiVersion: v1
kind: Pod
metadata: {name: p-0, namespace: ml, annotations: {tautline.io/gpu-devices: "GPU-a:250"}}
spec: {nodeName: n7, containers: []}
"#;

const CLAIMS: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: n7}, status: {allocatable: {cpu: "16"}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n7-gpu.tautline.io-0}
spec:
  driver: gpu.tautline.io
  nodeName: n7
  pool: {name: n7, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {uuid: {string: GPU-a}, index: {int: 0}, productName: {string: NVIDIA H100 80GB HBM3}}
    capacity: {milli: {value: "1000"}, memory: {value: 80Gi}}
    allowMultipleAllocations: true
---
{apiVersion: v1, kind: Pod, metadata: {name: p-0, namespace: ml, uid: u-0}, spec: {nodeName: n7, containers: []}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: p-0-gpu, namespace: ml}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.tautline.io}}]}}
status:
  reservedFor: [{resource: pods, name: p-0, uid: u-0}]
  allocation: {devices: {results: [{request: gpu, driver: gpu.tautline.io, pool: n7, device: gpu-0, shareID: a, consumedCapacity: {milli: "250"}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: kept, namespace: ml}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.tautline.io}}]}}
status:
  allocation: {devices: {results: [{request: gpu, driver: gpu.tautline.io, pool: n7, device: gpu-0, shareID: b, consumedCapacity: {milli: "500"}}]}}
"#;

const USES: &str = r#"{"nodes": [{"node": "n7", "ageSeconds": 1, "cards": [
  {"card": "GPU-a", "memoryBytes": 18253611008, "busyMilli": 370}],
 "containers": [{"namespace": "ml", "pod": "p-0", "container": "main", "card": "GPU-a",
   "memoryBytes": 536870912, "smMilli": 4}]}]}"#;

fn console(yaml: &str, uses: Option<&str>) -> Arc<Console> {
    let answer = |uses: &str| (Component::Gpu, "/gpu/use", uses.to_owned());
    let one = |uses: &str| (Component::Gpu, "/gpu/use?nodes=n7", uses.to_owned());
    let admin = uses.into_iter().flat_map(|uses| [answer(uses), one(uses)]);
    let source = FakeSource {
        admin: admin.collect(),
        ..FakeSource::default()
    };
    Arc::new(tests::console(yaml, source))
}

fn example() -> Arc<Console> {
    console(EXAMPLE, None)
}

/// Nodes of a page, in their order.
async fn nodes(console: &Arc<Console>, query: &str) -> Vec<String> {
    let view = json(console, &format!("/gpu{query}")).await;
    let rows = view["nodes"]["rows"].as_array().unwrap();
    rows.iter()
        .map(|row| row["node"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn sums_are_those_of_the_command_line() {
    let view = json(&example(), "/gpu").await;
    insta::assert_snapshot!("sums", serde_json::to_string_pretty(&view["sums"]).unwrap());
    insta::assert_snapshot!(
        "classes",
        serde_json::to_string_pretty(&view["fragmentation"]["classes"]).unwrap()
    );
    assert_eq!(view["warningCount"], 1);
    let (_, page) = get(&example(), "/gpu").await;
    assert!(
        page.contains("href=\"/decisions/vision/detector-0\""),
        "{page}"
    );
    assert!(
        page.contains("gpu-fragment") && page.contains("gpu-lost"),
        "{page}"
    );
    assert!(
        !page.contains("style="),
        "the content security policy forbids it"
    );
}

#[tokio::test]
async fn cards_of_devices_have_the_pods_of_claims() {
    let console = console(CLAIMS, Some(USES));
    let view = json(&console, "/gpu").await;
    let pool = &view["nodes"]["rows"][0]["pools"][0];
    assert_eq!(
        (&pool["lane"], &pool["cards"][0]["heldMilli"]),
        (&"dra".into(), &750.into())
    );
    let (_, page) = get(&console, "/gpu/n7").await;
    for part in [
        "href=\"/decisions/ml/p-0\">ml/p-0</a>",
        "ml/kept (claim)",
        "uses 512Mi",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn bars_have_pods_and_measured_use() {
    let console = console(AGENT, Some(USES));
    let view = json(&console, "/gpu").await;
    insta::assert_snapshot!(
        "bars",
        serde_json::to_string_pretty(&view["nodes"]["rows"][0]).unwrap()
    );
    assert_eq!(view["given"]["idleMilli"], 250);
    let (_, page) = get(&console, "/gpu").await;
    for part in [
        "17.0Gi, 37% busy",
        "Xid79",
        "ml/p-0",
        "uses 512Mi, &lt;1% busy",
        "gpu-used",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn page_shows_the_rest_while_the_provider_does_not_answer() {
    let console = console(AGENT, None);
    let (status, page) = get(&console, "/gpu").await;
    assert_eq!(status, 200);
    assert!(
        page.contains("no pod of Gpu runs") && page.contains("ml/p-0"),
        "{page}"
    );
    let (status, page) = get(&console, "/gpu/n7").await;
    assert_eq!(status, 200);
    assert!(
        page.contains("no pod of Gpu runs") && page.contains("ml/p-0"),
        "{page}"
    );
}

#[tokio::test]
async fn filter_selects_and_sorts() {
    let console = example();
    assert_eq!(
        nodes(&console, "?node=slice-").await,
        ["slice-1", "slice-2", "slice-3"]
    );
    assert_eq!(nodes(&console, "?sort=idle").await[0], "slice-1");
    assert_eq!(nodes(&console, "?sort=fragmented").await[0], "train-1");
    assert_eq!(nodes(&console, "?sort=faults").await[0], "slice-2");
    assert_eq!(nodes(&console, "?product=T4").await, ["slice-3"]);
    assert!(nodes(&console, "?namespace=nobody").await.is_empty());
    let (_, page) = get(&console, "/gpu?namespace=nobody").await;
    assert!(page.contains("No node fits the filter"), "{page}");
    assert_eq!(get(&console, "/gpu?sort=size").await.0, 400);
}

#[tokio::test]
async fn what_if_places_pods() {
    let console = example();
    let view = json(&console, "/gpu?pods=250,250,1000&model=A100").await;
    insta::assert_snapshot!(
        "what_if",
        serde_json::to_string_pretty(&view["whatIf"]).unwrap()
    );
    let (status, page) = get(&console, "/gpu?pods=2x250m").await;
    assert_eq!(status, 200);
    assert!(page.contains("2 of 2 fit"), "{page}");
    assert!(page.contains(r#"name="pods" value="2x250m""#), "{page}");
    let (status, page) = get(&console, "/gpu?pods=1500").await;
    assert_eq!(status, 400);
    assert!(page.contains("whole cards only"), "{page}");
    let uri = "/gpu?pods=3x500m,mig-1g.10gb&cpu=20&memory=60Gi";
    let view = json(&console, uri).await;
    insta::assert_snapshot!(
        "what_if_host",
        serde_json::to_string_pretty(&view["whatIf"]).unwrap()
    );
    let (_, page) = get(&console, uri).await;
    assert!(page.contains("free cpu 14, asked 20"), "{page}");
    assert!(page.contains(r#"name="memory" value="60Gi""#), "{page}");
    let (status, page) = get(&console, "/gpu?pods=1&cpu=two&memory=2Gi").await;
    assert_eq!(status, 200);
    let field =
        r#"name="cpu" value="two" aria-invalid="true" aria-describedby="gpu-cpu-error"></label>"#;
    let error =
        r#"<span class="error" id="gpu-cpu-error" role="alert">quantity &quot;two&quot; is not"#;
    assert!(page.contains(&format!("{field}{error}")), "{page}");
    assert!(
        !page.contains("gpu-memory-error") && !page.contains("fit</span>"),
        "{page}"
    );
    let view = json(&console, "/gpu?pods=1&memory=-1").await;
    assert!(view["whatIf"].is_null());
    assert!(
        view["whatIfErrors"]["memory"]
            .as_str()
            .unwrap()
            .contains("20Gi")
    );
    for wrong in ["1500", "9999x1"] {
        let uri = format!("/gpu?pods={wrong}&format=json");
        assert_eq!(get(&console, &uri).await.0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn one_node_has_its_pods_and_what_fits() {
    let console = example();
    let view = json(&console, "/gpu/slice-2").await;
    insta::assert_snapshot!(
        "node_fits",
        serde_json::to_string_pretty(&view["fits"]).unwrap()
    );
    let (_, page) = get(&console, "/gpu/slice-2").await;
    assert!(page.contains("tautline gpu top --node slice-2"), "{page}");
    for (node, why) in [
        ("web-1", "node web-1 has no GPUs"),
        ("gone", "there is no node gone"),
    ] {
        let (status, page) = get(&console, &format!("/gpu/{node}")).await;
        assert_eq!(status, 404);
        assert!(page.contains(why), "{page}");
    }
}

#[tokio::test]
async fn cluster_without_gpus_says_what_adds_them() {
    let console = console("{apiVersion: v1, kind: Node, metadata: {name: 'n'}}", None);
    let (status, page) = get(&console, "/gpu").await;
    assert_eq!(status, 200);
    assert!(page.contains("No node has GPUs, of 1"), "{page}");
    assert!(page.contains("--set gpu.enabled=true"), "{page}");
}

#[tokio::test]
async fn hostile_names_are_text() {
    let mut yaml = format!(
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: \"{HOSTILE}\"\n  \
         labels: {{nvidia.com/gpu.product: '<b>&\"'}}\n  annotations: {{tautline.io/gpu-cards: \"1\"}}\n"
    );
    for i in 0..2 {
        // Writing to a String cannot fail.
        _ = write!(
            yaml,
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: \"{HOSTILE}\\u202e{}{i}\"\n  namespace: ml\n  \
             annotations: {{tautline.io/gpu-devices: \"0:250\"}}\nspec: {{nodeName: \"{HOSTILE}\", containers: []}}\n",
            "x".repeat(10_000)
        );
    }
    let console = console(&yaml, None);
    let node = crate::links::path(&["gpu", HOSTILE]);
    for uri in [
        "/gpu",
        &node,
        "/gpu?node=%3Cscript%3E",
        "/gpu?pods=%3Cscript%3E",
    ] {
        let (_, page) = get(&console, uri).await;
        assert!(!page.contains("<script>alert"), "{uri}");
        assert!(!page.contains('\u{202e}'), "{uri}");
        // Links have the whole name.
        assert!(page.len() < 150_000, "{uri}: {}", page.len());
    }
}

#[tokio::test]
async fn pages_of_a_large_cluster_are_small() {
    let mut yaml = String::new();
    for n in 0..5_000 {
        _ = write!(
            yaml,
            "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: ip-10-{}-{}.eu-west-1.compute.internal\n  \
             annotations: {{tautline.io/gpu-cards: \"8\"}}\n",
            n / 250,
            n % 250
        );
    }
    for p in 0..15_000 {
        let node = p % 50;
        _ = write!(
            yaml,
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: inference-server-7d9f8b6c5-{p:05}\n  namespace: team-{}\n  \
             annotations: {{tautline.io/gpu-devices: \"{}:3\"}}\nspec: {{nodeName: ip-10-0-{node}.eu-west-1.compute.internal, containers: []}}\n",
            p % 40,
            p / 50 % 8
        );
    }
    let console = console(&yaml, None);
    let node = "/gpu/ip-10-0-3.eu-west-1.compute.internal";
    for uri in [
        "/gpu",
        "/gpu?page=3&pods=100x250",
        "/gpu?sort=fragmented",
        node,
    ] {
        let (status, page) = get(&console, uri).await;
        assert_eq!(status, 200, "{page}");
        assert!(page.len() < 200_000, "{uri}: {}", page.len());
    }
    let first = nodes(&console, "").await;
    let second = nodes(&console, "?page=2").await;
    assert!(
        !first.is_empty() && first.last() < second.first(),
        "{first:?} {second:?}"
    );
}
