use tautline_gpu_slice::report::Uses;

use super::*;
use crate::gpu::tests::fixtures::{agents, claims, example, inspection, of, slices, uses};

fn report(snapshot: std::sync::Arc<tautline_core::Snapshot>) -> Fragmentation {
    Fragmentation::new(&inspection(snapshot), &Uses::default())
}

#[test]
fn fragmentation_renders_text_and_json() {
    let report = report(example());
    insta::assert_snapshot!("fragmentation", super::text(&report));
    let json = serde_json::to_string_pretty(&report).unwrap();
    insta::assert_snapshot!("fragmentation_json", json);
}

#[test]
fn fragmentation_is_the_sum_of_its_parts() {
    let report = report(example());
    let lost = report.fragmented_milli.unwrap() as f64;
    let by_class: f64 = report
        .classes
        .iter()
        .map(|c| c.share * c.unusable_milli as f64)
        .sum();
    // Shares are rounded to 1/10,000 each.
    assert!((by_class - lost).abs() < lost / 1000.0, "{by_class} {lost}");
    let by_product: i64 = report
        .products
        .iter()
        .filter_map(|p| p.fragmented_milli)
        .sum();
    assert!(
        (by_product as f64 - lost).abs() <= 2.0,
        "{by_product} {lost}"
    );
}

#[test]
fn shared_card_is_not_usable_by_whole_requests() {
    let report = report(slices("2", &["0:250", "1:1000"]));
    let of = |milli| {
        report
            .classes
            .iter()
            .find(|c| c.card_milli == milli)
            .unwrap()
    };
    assert_eq!((of(250).still_fit, of(250).unusable_milli), (3, 0));
    assert_eq!((of(1000).still_fit, of(1000).unusable_milli), (0, 750));
    assert_eq!(of(1000).nodes.gpu_short, 1);
    assert_eq!(report.fragmented_milli, Some(375));
}

#[test]
fn text_reports_missing_cards_and_requests() {
    let none = report(of("apiVersion: v1\nkind: Node\nmetadata: {name: 'n'}\n"));
    assert_eq!(
        super::text(&none),
        "No pod requests GPUs, so no request is expected.\n"
    );
    let idle = super::text(&report(slices("2", &[])));
    assert!(
        idle.contains("2000m of GPU are idle; without requests their use is not known."),
        "{idle}"
    );
}

#[test]
fn given_parts_that_are_hardly_used_are_idle() {
    let report = Fragmentation::new(&inspection(agents()), &uses());
    let given = report.given.as_ref().unwrap();
    // p-0 uses 14.2 GiB, p-1 1 GiB of its 40 GiB, p-2 and p-3 nothing.
    assert_eq!((given.milli, given.idle_milli), (2000, 1750));
    assert_eq!(given.idle_pods, ["ml/p-2", "ml/p-1", "ml/p-3"]);
    let text = super::text(&report);
    assert!(
        text.contains(
            "88% of the GPU that pods have is idle at this moment: 1750m of 2000m. Used under 5% of \
             their memory and 1% of the time: ml/p-2, ml/p-1, ml/p-3.\n"
        ),
        "{text}"
    );
}

/// On a node without an agent nothing serves requests for cards of an agent, and the other way
/// round, as `gpu explain` says.
#[test]
fn requests_for_cards_of_agents_run_only_on_their_nodes() {
    let text = r#"
apiVersion: v1
kind: Node
metadata: {name: label, annotations: {tautline.io/gpu-cards: "4"}}
---
apiVersion: v1
kind: Node
metadata:
  name: agent
  annotations:
    tautline.io/gpu-inventory: '{"limits": "none", "cards": [{"uuid": "GPU-a", "index": 0}]}'
status: {allocatable: {tautline.io/gpu-milli: "1000"}}
---
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: ml}
spec:
  containers: [{name: a, image: x, resources: {limits: {tautline.io/gpu-milli: 250}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: has, namespace: ml, annotations: {tautline.io/gpu-devices: "0:500"}}
spec: {nodeName: label, containers: []}
"#;
    let report = report(of(text));
    let class = |milli| {
        let of = report.classes.iter().find(|c| c.card_milli == milli);
        let of = of.unwrap();
        (of.nodes.runs, of.nodes.other_lane, of.still_fit)
    };
    assert_eq!(class(250), (1, 1, 4), "on the node with the agent");
    assert_eq!(class(500), (1, 1, 7), "on the other one");
    let mut inspection = inspection(of(text));
    let pod = std::sync::Arc::clone(inspection.snapshot().pod("ml", "waits").unwrap());
    let ask = inspection.questions(&pod).rules.remove(0).ask;
    for (node, fit) in inspection.fits(&ask).unwrap() {
        let usable = matches!(fit, tautline_gpu_slice::Fit::Usable { .. });
        assert_eq!(usable, node == "agent", "{node}: {fit:?}");
    }
}

#[test]
fn requests_of_claims_count() {
    let report = Fragmentation::new(&claims(), &uses());
    insta::assert_snapshot!("fragmentation_claims", super::text(&report));
}
