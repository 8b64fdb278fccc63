use std::sync::Arc;

use tautline_core::{Snapshot, model::Pod};

use super::*;
use crate::gpu::tests::fixtures::{example, of};

fn explained(snapshot: Arc<Snapshot>, namespace: &str, name: &str) -> PodExplanation {
    let pod = Pod::clone(snapshot.pod(namespace, name).unwrap());
    // The published policy: its costs stay as they are.
    PodExplanation::new(snapshot, &pod, Policy::Fgd).unwrap()
}

#[test]
fn explains_a_waiting_pod() {
    let waits = explained(example(), "vision", "detector-4");
    insta::assert_snapshot!("explain_waits", waits.text(20));
    let json = serde_json::to_string_pretty(&waits).unwrap();
    insta::assert_snapshot!("explain_json", json);
    let nowhere = explained(example(), "vision", "trainer-3");
    assert!(nowhere.usable_nodes.is_empty());
    insta::assert_snapshot!("explain_nowhere", nowhere.text(3));
}

#[test]
fn explains_a_placed_pod() {
    let text = |name| explained(example(), "vision", name).text(20);
    insta::assert_snapshot!("explain_shares", text("detector-0"));
    insta::assert_snapshot!("explain_lost_card", text("segmenter-2"));
    insta::assert_snapshot!("explain_guess", text("trainer-1"));
}

#[test]
fn explains_unrequested_cards_and_finished_pods() {
    let text = explained(example(), "vision", "ranker-0").text(0);
    assert!(
        text.contains("no GPU is requested, but the pod has cards, 7 CPU"),
        "{text}"
    );
    let done = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ml}\n\
                spec: {nodeName: 'n', containers: []}\nstatus: {phase: Succeeded}\n";
    let done = explained(of(done), "ml", "p");
    assert!(done.rules[0].state.is_none());
    assert!(
        done.text(20)
            .contains("the pod has finished, and holds nothing")
    );
}

const TWO_OFFERS: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: a, annotations: {tautline.io/gpu-cards: "1"}}
status: {allocatable: {pods: "110"}}
---
apiVersion: v1
kind: Node
metadata: {name: b, annotations: {tautline.io/gpu-cards: "1"}}
spec: {unschedulable: true}
status: {allocatable: {pods: "110"}}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicy
metadata: {name: odd, namespace: ml}
spec: {rules: [{name: gpu-slice, request: lots}, {name: latency, request: 5ms}]}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicy
metadata: {name: half, namespace: ml}
spec: {rules: [{name: gpu-slice, request: 500m}]}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicyOffer
metadata: {name: one, namespace: ml}
spec: {targets: [{apiVersion: v1, kind: Pod, labelSelector: {}}], policies: [half, gone]}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicyOffer
metadata: {name: two, namespace: ml}
spec: {targets: [{apiVersion: v1, kind: Pod, labelSelector: {}}], policies: [odd]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ml}
spec: {containers: []}
"#;

#[test]
fn explains_malformed_rules_and_missing_policies() {
    let text = explained(of(TWO_OFFERS), "ml", "p").text(20);
    insta::assert_snapshot!("explain_broken", text);
}
