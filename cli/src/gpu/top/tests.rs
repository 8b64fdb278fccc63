use tautline_core::Snapshot;
use tautline_gpu_slice::report::Uses;

use super::*;
use crate::gpu::tests::fixtures::{agents, claims, example, inspection, of, slices, uses};

const UNICODE: TerminalStyle = TerminalStyle {
    unicode: true,
    colour: false,
};
const ASCII: TerminalStyle = TerminalStyle {
    unicode: false,
    colour: false,
};

fn top(snapshot: std::sync::Arc<Snapshot>) -> Top {
    Top::new(&inspection(snapshot), &Uses::default(), None, Order::Name)
}

#[test]
fn top_renders_text_and_json() {
    let top = top(example());
    insta::assert_snapshot!("top", super::text(&top, UNICODE, None));
    insta::assert_snapshot!("top_ascii", super::text(&top, ASCII, None));
    insta::assert_snapshot!("top_json", serde_json::to_string_pretty(&top).unwrap());
}

#[test]
fn top_sorts_nodes() {
    let inspection = inspection(example());
    let order = |sort| {
        let top = Top::new(&inspection, &Uses::default(), None, sort);
        top.nodes.iter().map(|n| n.node.clone()).collect::<Vec<_>>()
    };
    assert_eq!(order(Order::Name)[0], "edge-1");
    assert_eq!(order(Order::Idle)[0], "slice-1");
    assert_eq!(order(Order::Fragmented)[0], "train-1");
    let one = Top::new(&inspection, &Uses::default(), Some("slice-3"), Order::Name);
    assert_eq!((one.nodes.len(), one.totals.len()), (1, 1));
    assert!(one.warnings.is_empty());
}

#[test]
fn text_fits_the_terminal() {
    use unicode_width::UnicodeWidthStr;

    let top = top(example());
    let widest = |text: &str| text.lines().map(UnicodeWidthStr::width).max().unwrap();
    let whole = super::text(&top, UNICODE, None);
    for columns in [40, 80, 100, 120, 140] {
        let text = super::text(&top, UNICODE, Some(columns));
        let cards = text.split("Warnings:").next().unwrap();
        assert!(widest(cards) <= columns, "{columns}:\n{text}");
        assert_eq!(text.lines().count(), whole.lines().count(), "{columns}");
        if columns >= 80 {
            let head = text.lines().next().unwrap();
            assert!(head.contains("FREE") && head.contains("HELD BY"), "{text}");
        }
    }
    assert_eq!(super::text(&top, UNICODE, Some(1000)), whole);
}

#[test]
fn text_reports_faults_and_warnings() {
    let top = top(slices("2", &["0:700", "0:500", "0:lots", "7:250"]));
    let text = super::text(&top, ASCII, None);
    assert!(text.contains("over-committed"), "{text}");
    assert!(
        text.contains("pod ml/p-2, annotation tautline.io/gpu-devices: \"0:lots\" is no card"),
        "{text}"
    );
    assert!(
        text.contains("pod ml/p-3 holds card 7, and the node has no such card"),
        "{text}"
    );
}

#[test]
fn top_accepts_clusters_without_gpus_or_requests() {
    let empty = top(of("apiVersion: v1\nkind: Node\nmetadata: {name: 'n'}\n"));
    assert_eq!(super::text(&empty, ASCII, None), "");
    // Cards without any request: their use is not known.
    let idle = top(slices("2", &[]));
    let text = super::text(&idle, ASCII, None);
    assert!(
        text.contains("n      0-1    ....................   0m     2000m   -"),
        "{text}"
    );
    assert!(
        !serde_json::to_string(&idle)
            .unwrap()
            .contains("fragmentedMilli")
    );
}

#[test]
fn absent_node_is_reported_with_the_nodes_that_exist() {
    let error = absent(&inspection(example()), "slice-9");
    assert!(
        error.contains("node slice-9 does not exist; nodes with GPUs are edge-1, edge-2, mig-1, slice-1, slice-2 and 3 more"),
        "{error}"
    );
}

#[test]
fn top_shows_what_is_used_beside_what_is_held() {
    let (inspection, uses) = (inspection(agents()), uses());
    let top = Top::new(&inspection, &uses, None, Order::Name);
    insta::assert_snapshot!("top_used", super::text(&top, ASCII, None));
    insta::assert_snapshot!("top_used_json", serde_json::to_string_pretty(&top).unwrap());
    let narrow = super::text(&top, ASCII, Some(80));
    let head = narrow.lines().next().unwrap();
    assert!(
        head.contains("USED") && head.contains("HELD BY"),
        "{narrow}"
    );
}

#[test]
fn an_agent_that_offers_no_cards_is_a_warning_and_has_no_strays() {
    let node = r#"apiVersion: v1
kind: Node
metadata:
  name: n7
  annotations:
    tautline.io/gpu-inventory: '{"cards": [{"uuid": "GPU-a", "index": 0}, {"uuid": "GPU-b", "index": 1}]}'
status: {allocatable: {tautline.io/gpu-milli: "0", nvidia.com/gpu: "0"}}
"#;
    let inspection = inspection(of(node));
    let top = Top::new(&inspection, &uses(), None, Order::Name);
    let text = super::text(&top, ASCII, None);
    assert!(
        text.contains("tautline.io/gpu-milli is not allocatable"),
        "{text}"
    );
    assert!(
        !text.contains("which no claim or record gives it"),
        "{text}"
    );
}

#[test]
fn top_shows_the_cards_that_pods_claim() {
    let (inspection, uses) = (claims(), uses());
    let top = Top::new(&inspection, &uses, None, Order::Name);
    insta::assert_snapshot!("top_claims", super::text(&top, ASCII, None));
}
