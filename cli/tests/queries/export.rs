//! `tautline export affinity` against an API server and an extender that answer from a script, and
//! on manifests.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::{
    api_server::{Answer, ApiServer},
    list, tautline, text,
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn node(name: &str, zone: Option<&str>) -> Value {
    let labels = zone.map(|zone| json!({"topology.kubernetes.io/zone": zone, "pool": zone}));
    json!({"metadata": {"name": name, "labels": labels}})
}

fn rule() -> Value {
    json!({"offer": "clients", "rule": "latency", "request": "", "limit": "20ms", "weight": 1,
           "provider": "shop/latency", "outcome": "OK", "counted": true, "tookMicros": 1})
}

fn usable(name: &str, detail: &str) -> Value {
    json!({"node": name, "usable": true, "score": 10, "costs": [{"cost": 1, "detail": detail}]})
}

fn unusable(name: &str, code: &str, freeable: bool) -> Value {
    json!({"node": name, "usable": false, "score": 0, "reason": format!("latency/{code}"),
           "costs": [{"cost": -1, "code": code, "freeable": freeable}]})
}

/// An API server with five nodes in three zones, whose port is also the extender's. The offer's name is
/// `clients`.
fn cluster(answer: Value) -> ApiServer {
    ApiServer::start(move |path| {
        let (path, _) = path.split_once('?').unwrap_or((path, ""));
        match path {
            "/what-if" => Answer::json(200, &answer),
            "/api/v1/nodes" => {
                let zones = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")];
                let mut nodes: Vec<Value> = zones.map(|(name, zone)| node(name, Some(zone))).into();
                nodes.push(node("lost", None));
                list("Node", &nodes, "")
            }
            "/api/v1/namespaces/shop/pods" => {
                let pod = json!({"metadata": {"name": "client-0", "namespace": "shop",
                    "labels": {"app": "client"}}, "spec": {"containers": []}});
                list("Pod", &[pod], "")
            }
            _ if path.ends_with("/namespaces/shop/constraintpolicyoffers/clients") => Answer::json(
                200,
                &json!({"apiVersion": "constraint.ciena.com/v1alpha1",
                        "kind": "ConstraintPolicyOffer",
                        "metadata": {"name": "clients", "namespace": "shop"},
                        "spec": {"policies": ["near"], "targets": [{"kind": "Pod",
                            "labelSelector": {"matchLabels": {"app": "client"}}}]}}),
            ),
            _ => crate::refusal(404, "NotFound", "not found", Some("x")),
        }
    })
}

fn export(server: &ApiServer, args: &[&str]) -> Output {
    let url = server.url();
    let args = [&["export", "affinity"], args, &["--url", &url]].concat();
    tautline(server, &args)
}

fn answer(nodes: &[Value]) -> Value {
    json!({"governed": true, "rules": [rule()], "nodes": nodes})
}

#[test]
fn export_names_the_zones_within_the_limits() {
    let server = cluster(answer(&[
        usable("a2", "350us to n1"),
        usable("lost", "1ms to n1"),
        unusable("a1", "OverLimit", false),
        unusable("b1", "Full", true),
        unusable("c1", "OverLimit", false),
        usable("gone", "1ms to n1"),
    ]));
    let out = export(&server, &["shop/clients"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    insta::assert_snapshot!(text(&out.stdout), @r"
    offer shop/clients, asked for pod shop/client-0
    VALUE    NODES   WITHIN   BEST          WHY NOT
    a        2       1        350us to n1   latency/OverLimit
    b        1       1        -             -
    c        1       0        -             latency/OverLimit
    (none)   1       1        1ms to n1     -
    ");
    let out = export(&server, &["shop/clients", "-o", "yaml", "--by", "pool"]);
    insta::assert_snapshot!(text(&out.stdout), @r"
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions:
            - key: pool
              operator: In
              values:
              - a
              - b
    ");
    let out = export(&server, &["shop/clients", "-o", "json"]);
    let printed: Value = serde_json::from_slice(&out.stdout).unwrap();
    let terms = &printed["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    assert_eq!(
        terms[0]["matchExpressions"][0],
        json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]})
    );
}

#[test]
fn export_without_a_value_says_why() {
    let far = [
        unusable("a1", "OverLimit", false),
        unusable("b1", "Full", false),
    ];
    let far = [&far[..], &[unusable("c1", "OverLimit", false)]].concat();
    let server = cluster(answer(&far));
    let out = export(&server, &["shop/clients"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("\nb       1       0        -      latency/Full\n"));
    assert_eq!(
        text(&out.stderr),
        "error: no value of topology.kubernetes.io/zone can meet the limits of offer shop/clients: \
         latency/OverLimit refuses 2 of 3 nodes\n"
    );
    let server = cluster(answer(&[usable("a1", "")]));
    let out = export(&server, &["shop/clients", "-o", "yaml", "--by", "rack"]);
    assert_eq!(
        (out.status.code(), text(&out.stdout).as_str()),
        (Some(1), "")
    );
}

#[test]
fn export_needs_an_answer_of_every_rule() {
    let mut failed = rule();
    failed["outcome"] = "ProviderTimeout".into();
    failed["error"] = "no answer within 500ms".into();
    for (answer, expected) in [
        (
            json!({"governed": true, "rules": [rule(), failed], "nodes": []}),
            "error: offer shop/clients, pod shop/client-0: rule latency has no answer (provider \
             shop/latency): ProviderTimeout: no answer within 500ms\n",
        ),
        (
            json!({"governed": false, "rules": [], "nodes": [usable("a1", "")]}),
            "error: offer shop/clients, pod shop/client-0: the extender does not govern it: pods of \
             the namespace may be exempt (--exempt-namespaces), or the offer is too new; try again\n",
        ),
    ] {
        let out = export(&cluster(answer), &["shop/clients"]);
        assert_eq!(text(&out.stderr), expected);
        assert_eq!((out.status.code(), out.stdout.len()), (Some(1), 0));
    }
    let out = export(&cluster(answer(&[])), &["shop/servers"]);
    assert_eq!(text(&out.stderr), "error: there is no offer shop/servers\n");
    assert_eq!(out.status.code(), Some(1));
}

#[test]
fn export_reads_manifests() {
    let export = |offer: &str, files: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tautline"));
        command.args(["export", "affinity", offer]).args(files);
        command.current_dir(ROOT).env("HOME", "/nonexistent");
        command.env_remove("KUBECONFIG").output().unwrap()
    };
    let edge = ["-f", "examples/edge-inference"];
    let out = export("vision/aggregators", &edge);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    insta::assert_snapshot!(text(&out.stdout), @r"
    offer vision/aggregators, asked for pod vision/aggregator-0
    VALUE        NODES   WITHIN   BEST                                                WHY NOT
    core         4       0        -                                                   latency/OverLimit
    edge-north   4       4        0us to north-1, the same node, within the request   -
    edge-south   4       4        8ms to north-1, configured                          -
    ");

    let out = export("vision/none", &edge);
    assert_eq!(out.status.code(), Some(1));

    // No Service provides the rule.
    let out = export(
        "shop/clients",
        &["-f", "examples/near-server/1-policy.yaml"],
    );
    assert_eq!(out.status.code(), Some(1));
    let error = text(&out.stderr);
    assert!(
        error.contains("a pod with the labels of its selector, without requests: rule latency has no answer (no provider): NoProvider"),
        "{error}"
    );
}
