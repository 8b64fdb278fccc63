//! `tautline explain` against an extender that answers from a script.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::{
    api_server::{Answer, ApiServer},
    text,
};

fn explain(server: &ApiServer, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tautline"));
    command.arg("explain").args(args);
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent");
    command.args(["--url", &server.url()]).output().unwrap()
}

fn record(now: &Value) -> Value {
    let node = |name: &str, usable: bool| {
        let reason = (!usable).then_some("latency/OverLimit");
        json!({"node": name, "usable": usable, "score": 5, "costs": [], "reason": reason})
    };
    let nodes: Vec<Value> = (0..50).map(|i| node(&format!("n{i:02}"), i < 49)).collect();
    json!({
        "namespace": "shop", "pod": "web-0", "uid": "u1", "atUnixMillis": 0, "tookMicros": 1500,
        "usable": 49, "rules": [], "nodes": nodes, "podNow": now,
    })
}

#[test]
fn explain_shows_the_current_node() {
    let bound = |node: &str| json!({"state": "Bound", "node": node});
    for (now, expected) in [
        (bound("n01"), &["  now bound to n01\n", "> n01"][..]),
        // A node that would not be shown otherwise.
        (
            bound("n45"),
            &["  now bound to n45\n", "> n45", "... and 9 more nodes"],
        ),
        (json!({"state": "NotBound"}), &["  now not bound\n"]),
        (json!({"state": "Deleted"}), &["  now deleted\n"]),
        (json!({"state": "Replaced"}), &["a newer pod has its name"]),
        (
            json!({"state": "Unknown", "error": "late"}),
            &["its current node is unknown: late"],
        ),
        (Value::Null, &["49 of 50 nodes usable"]),
    ] {
        let record = record(&now);
        let server = ApiServer::start(move |path| {
            assert_eq!(path, "/explain/shop/web-0");
            Answer::json(200, &json!([record]))
        });
        for args in [&["shop/web-0"][..], &["web-0", "-n", "shop"]] {
            let out = explain(&server, args);
            assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
            let printed = text(&out.stdout);
            for part in expected {
                assert!(printed.contains(part), "{part}: {printed}");
            }
        }
    }
}

#[test]
fn explain_shows_the_answer_and_what_tied() {
    for (mode, nodes, tied, expected) in [
        ("ties", 1, 1, "  answer (ties): n00, the best node\n"),
        (
            "decisive",
            1,
            3,
            "  answer (decisive): n00, one of 3 nodes that tie for best\n",
        ),
        (
            "ties",
            2,
            2,
            "  answer (ties): 2 nodes that tie for best; kube-scheduler chooses\n",
        ),
        (
            "ties",
            2,
            70,
            "  answer (ties): 2 of 70 nodes that tie for best; kube-scheduler chooses\n",
        ),
        (
            "shortlist",
            9,
            2,
            "  answer (shortlist): the best 9 of 49 usable nodes; kube-scheduler adds its scores\n",
        ),
    ] {
        let nodes: Vec<String> = (0..nodes).map(|i| format!("n{i:02}")).collect();
        let mut record = record(&Value::Null);
        record["answer"] = json!({"mode": mode, "nodes": nodes, "tied": tied});
        let server = ApiServer::start(move |_| Answer::json(200, &json!([record])));
        let out = explain(&server, &["shop/web-0"]);
        let printed = text(&out.stdout);
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
}

#[test]
fn namespace_is_that_of_the_context() {
    let server = ApiServer::start(|path| {
        assert_eq!(path, "/explain/shop/web-0");
        Answer::json(200, &json!([record(&Value::Null)]))
    });
    let kubeconfig = server.kubeconfig.display().to_string();
    let out = explain(&server, &["web-0", "--kubeconfig", &kubeconfig]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}

#[test]
fn explain_prints_the_reason_for_a_missing_record() {
    let server = ApiServer::start(|path| {
        assert_eq!(path, "/explain/default/web-9");
        Answer::text(404, "there is no pod default/web-9\n")
    });
    let out = explain(&server, &["web-9"]);
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(text(&out.stderr), "there is no pod default/web-9\n");
    for (args, expected) in [
        (&["shop/web-0", "-n", "other"][..], "leave one out"),
        (&["../web-0"], "lower-case"),
    ] {
        let out = explain(&server, args);
        assert_eq!(out.status.code(), Some(2));
        assert!(text(&out.stderr).contains(expected), "{args:?}");
    }
}
