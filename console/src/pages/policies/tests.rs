use std::{fmt::Write, sync::Arc};

use crate::{
    Console,
    tests::{self, FakeSource, get},
};

const MANIFEST: &str = r#"
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: shop, labels: {app: web}}, spec: {containers: []}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop, labels: {app: web}}, spec: {containers: []}}
---
apiVersion: v1
kind: Service
metadata: {name: net, namespace: tautline-system, labels: {constraint.ciena.com/constraint-latency: enabled}}
spec: {type: ExternalName, externalName: net.example.com}
---
apiVersion: v1
kind: Service
metadata: {name: tenant, namespace: other, labels: {constraint.ciena.com/constraint-rack: enabled}}
spec: {selector: {app: rack}}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicy
metadata: {name: near, namespace: shop}
spec: {rules: [{name: latency, request: 5ms, limit: 20ms, weight: 3}]}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicy
metadata: {name: racks, namespace: shop}
spec: {rules: [{name: rack, limit: "<img src=x onerror=alert(1)>"}, {name: carbon, limit: 1k}]}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicyOffer
metadata: {name: a-good, namespace: shop}
spec:
  targets:
  - {name: db, kind: Pod, cluster: east, labelSelector: {matchLabels: {app: db}}}
  - {name: source, kind: Pod, labelSelector: {matchLabels: {app: web}}}
  - {name: site, kind: Cluster, apiVersion: sites.example.com/v1}
  - {name: peers, kind: Pod, peers: group}
  group: {by: shard, minimum: 2}
  policies: [near]
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicyOffer
metadata: {name: z-bad, namespace: shop}
spec:
  targets: [{name: source, kind: Pod, labelSelector: {matchLabels: {app: wbe}}}]
  policies: [racks, absent]
  violationPolicy: Mediate
"#;

fn console() -> Arc<Console> {
    Arc::new(tests::console(MANIFEST, FakeSource::default()))
}

#[tokio::test]
async fn offers_with_problems_come_first() {
    let view = tests::json(&console(), "/policies").await;
    let bad = &view["offers"]["rows"][0];
    assert_eq!(bad["name"], "z-bad");
    let problems = bad["problems"].as_array().unwrap().iter();
    let problems: Vec<_> = problems.map(|p| p.as_str().unwrap()).collect();
    insta::assert_snapshot!(problems.join("\n"), @r"
    target source selects nothing
    rule rack: no Service answers it here: other/tenant is in an untrusted namespace and counts there only
    rule carbon: no Service answers it: label one constraint.ciena.com/constraint-carbon=enabled, in shop or in Tautline's namespace
    ConstraintPolicy absent does not exist in this namespace
    violationPolicy Mediate: no Service has the label constraint.ciena.com/underlay-controller
    ");
    let good = &view["offers"]["rows"][1];
    assert_eq!(good["problems"].as_array().unwrap().len(), 0);
    let in_east = &good["targets"][0];
    assert_eq!(in_east["selector"], "app=db of cluster east");
    assert!(in_east.get("selected").is_none(), "{in_east}");
    assert_eq!(good["targets"][1]["selected"], 2);
    assert_eq!(good["group"], "2 pods with one value of label shard");
    let peers = &good["targets"][3];
    assert_eq!(peers["selector"], "the other pods of the group");
    assert!(peers.get("selected").is_none(), "{peers}");
    // Not watched, so not counted.
    let site = &good["targets"][2];
    assert!(
        site["kind"] == "Cluster" && site.get("selected").is_none(),
        "{site}"
    );
    assert_eq!(good["rules"][0]["service"], "tautline-system/net");
}

#[tokio::test]
async fn offer_shows_missing_policies_once() {
    let offer = MANIFEST.replace("[racks, absent]", "[absent, gone]");
    let status = "status: {conditions: [{type: Ready, status: \"False\", reason: PolicyMissing, \
                  message: \"ConstraintPolicy absent, gone does not exist in this namespace; more\", \
                  lastTransitionTime: \"2026-01-02T10:00:00Z\"}]}";
    for (manifest, expected) in [
        (
            format!("{}\n{status}", offer.trim_end()),
            "PolicyMissing: ConstraintPolicy absent, gone does not exist in this namespace; more",
        ),
        (
            offer.clone(),
            "ConstraintPolicy absent, gone does not exist in this namespace",
        ),
    ] {
        let console = Arc::new(tests::console(&manifest, FakeSource::default()));
        let view = tests::json(&console, "/policies?name=z-bad").await;
        let problems = view["offers"]["rows"][0]["problems"].as_array().unwrap();
        let about_policies = problems.iter().filter_map(|p| p.as_str());
        let about_policies: Vec<_> = about_policies.filter(|p| p.contains("absent")).collect();
        assert_eq!(about_policies, [expected]);
    }
}

#[tokio::test]
async fn policies_name_the_service_of_each_rule() {
    let view = tests::json(&console(), "/policies?list=policies").await;
    let rows = view["policies"]["rows"].as_array().unwrap();
    assert_eq!(rows[0]["name"], "racks", "problems come first");
    assert_eq!(rows[1]["rules"][0]["service"], "tautline-system/net");
    assert_eq!(rows[1]["offers"][0], "a-good");
    let (_, body) = get(&console(), "/policies?list=policies").await;
    assert!(!body.contains("<img"), "{body}");
    assert!(body.contains("&lt;img src=x"), "{body}");
}

#[tokio::test]
async fn two_equal_providers_are_ambiguous() {
    let second = MANIFEST.replacen(
        "name: tenant, namespace: other",
        "name: z, namespace: tautline-system",
        1,
    );
    let second = second.replace("constraint-rack", "constraint-latency");
    let console = Arc::new(tests::console(&second, FakeSource::default()));
    let view = tests::json(&console, "/policies?namespace=shop&name=a-good").await;
    let problem = view["offers"]["rows"][0]["problems"][0].as_str().unwrap();
    assert!(
        problem.contains("Service tautline-system/z has the label, too"),
        "{problem}"
    );
}

#[tokio::test]
async fn empty_lists_teach_and_odd_ones_are_refused() {
    let empty = Arc::new(tests::console(
        "{apiVersion: v1, kind: List, items: []}",
        FakeSource::default(),
    ));
    for (list, text) in [
        ("offers", "No offer is here"),
        ("policies", "No policy is here"),
    ] {
        let (_, body) = get(&empty, &format!("/policies?list={list}")).await;
        assert!(body.contains(text), "{list}: {body}");
    }
    let (status, body) = get(&empty, "/policies?list=odd").await;
    assert_eq!(status, 400);
    assert!(body.contains("offers, policies"), "{body}");
}

#[tokio::test]
async fn many_offers_are_a_small_page() {
    let mut yaml = MANIFEST.to_owned();
    for i in 0..2_000 {
        _ = write!(
            yaml,
            "---\napiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicyOffer\n\
             metadata: {{name: offer-{i:04}, namespace: shop}}\n\
             spec: {{targets: [{{name: source, kind: Pod, labelSelector: {{matchLabels: {{app: web}}}}}}], policies: [near, racks]}}\n"
        );
    }
    let console = Arc::new(tests::console(&yaml, FakeSource::default()));
    for list in ["offers", "policies"] {
        let (_, body) = get(&console, &format!("/policies?list={list}")).await;
        assert!(body.len() < 200_000, "{list}: {} bytes", body.len());
    }
}
