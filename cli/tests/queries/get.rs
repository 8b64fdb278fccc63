//! Lists: paged, sorted, filtered, empty.

use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::{
    api_server::{Answer, ApiServer},
    binding, bindings, command, refusal, tautline, text, without_crds,
};

const GROUP: &str = "/apis/constraint.ciena.com/v1alpha1";

fn names(out: &Output) -> Vec<String> {
    let list: Value = serde_json::from_slice(&out.stdout).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|i| i["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn get_reads_pages_and_sorts_the_worst_first() {
    let server = ApiServer::start(|path| {
        assert!(
            path.starts_with(&format!("{GROUP}/namespaces/shop/")),
            "{path}"
        );
        assert!(path.contains("limit=500"), "{path}");
        if path.contains("continue=two") {
            bindings(&[binding("b-2", "Error"), binding("a-3", "Compliant")], "")
        } else {
            bindings(
                &[binding("a-1", "Compliant"), binding("a-2", "Violation")],
                "two",
            )
        }
    });
    // The namespace is that of the kubeconfig's context.
    let out = tautline(&server, &["get", "bindings", "-o", "json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(names(&out), ["b-2", "a-2", "a-1", "a-3"]);
    let list: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(list["kind"], "List");
    assert_eq!(
        list["items"][0],
        binding("b-2", "Error"),
        "as the API server has it, with fields that this version does not know"
    );

    let args = [
        "get",
        "cpb",
        "--offer",
        "a",
        "--compliance",
        "violation,Error",
    ];
    let out = tautline(&server, &args);
    let table = text(&out.stdout);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert!(lines[1].starts_with("a-2    a       Violation   because   source=Pod/client"));

    let out = tautline(&server, &["get", "binding", "-o", "yaml"]);
    assert!(
        text(&out.stdout).contains("kind: List"),
        "{}",
        text(&out.stdout)
    );
}

#[test]
fn get_rereads_an_expired_list() {
    let server = ApiServer::start(|path| {
        if path.contains("continue=two") {
            refusal(410, "Expired", "too old", None)
        } else if path.contains("limit=") {
            bindings(&[binding("a-1", "Compliant")], "two")
        } else {
            bindings(&[binding("a-1", "Limit"), binding("a-2", "Error")], "")
        }
    });
    let out = tautline(&server, &["get", "bindings", "-o", "json"]);
    assert_eq!(names(&out), ["a-2", "a-1"]);
}

#[test]
fn get_accepts_an_empty_list() {
    let server = ApiServer::start(|_| bindings(&[], ""));
    let outputs = |args: &[&str]| {
        let out = tautline(&server, args);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        (text(&out.stdout), text(&out.stderr))
    };
    let nothing = |message: &str| (String::new(), format!("{message}\n"));
    assert_eq!(
        outputs(&["get", "bindings"]),
        nothing("no bindings found in namespace shop")
    );
    assert_eq!(
        outputs(&["get", "cp", "-n", "other"]),
        nothing("no policies found in namespace other")
    );
    assert_eq!(
        outputs(&["get", "offer", "-A"]),
        nothing("no offers found in any namespace")
    );
    assert_eq!(
        outputs(&["get", "bindings", "--compliance", "error", "--offer", "a"]),
        nothing("no bindings of offer a with compliance Error found in namespace shop")
    );
    let (stdout, _) = outputs(&["get", "bindings", "-A", "-o", "json"]);
    assert_eq!(
        serde_json::from_str::<Value>(&stdout).unwrap()["items"],
        json!([])
    );
}

#[test]
fn get_of_a_missing_name_exits_with_1() {
    let server = ApiServer::start(|path| match path {
        p if p.contains("/constraintpolicybindings/a-1") => {
            Answer::json(200, &binding("a-1", "Limit"))
        }
        _ => refusal(404, "NotFound", "not found", Some("a-2")),
    });
    let out = tautline(&server, &["get", "bindings", "a-1", "a-2"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("a-1"), "what is there is shown");
    let absent = "there is no ConstraintPolicyBinding a-2 in namespace shop; \
                  `tautline get bindings -A` lists";
    assert!(text(&out.stderr).contains(absent), "{}", text(&out.stderr));
    let out = tautline(&server, &["describe", "binding", "a-2"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains(absent), "{}", text(&out.stderr));
    let out = tautline(&server, &["describe", "offer", "a-2"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("get offers -A"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn closed_pipe_is_not_an_error() {
    let server = ApiServer::start(|_| bindings(&[binding("a-1", "Compliant")], ""));
    for args in [&["get", "bindings"][..], &["get", "bindings", "-o", "yaml"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command(&server.kubeconfig, args);
        let out = command.stdout(writer).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        assert_eq!(text(&out.stderr), "");
    }
}

#[test]
fn silent_api_server_gives_a_notice_then_an_error() {
    // The kernel accepts connections, and no process answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let commands: [&[&str]; 6] = [
        &["get", "bindings"],
        &["get", "offers", "a"],
        &["describe", "offer", "a"],
        &["watch"],
        &["gpu", "top"],
        &["plan"],
    ];
    // All at once: each takes as long as the deadline.
    let running = commands.map(|args| {
        let mut command = command(&kubeconfig, args);
        let outputs = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        (args, outputs.spawn().unwrap())
    });
    for (args, child) in running {
        let out = child.wait_with_output().unwrap();
        let error = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {error}");
        let waits = format!("the API server at {url} has not answered for 3 s; still waiting");
        assert_eq!(error.matches(&waits).count(), 1, "{args:?}: {error}");
        let gone = format!("no answer from {url} within 15 s");
        assert!(error.contains(&gone), "{args:?}: {error}");
    }
}

#[test]
fn get_errors_name_the_fix() {
    let commands: [&[&str]; 5] = [
        &["get", "bindings"],
        &["get", "bindings", "a"],
        &["describe", "binding", "a"],
        &["describe", "offer", "a"],
        &["watch"],
    ];
    let fails_with = |server: &ApiServer, expected: &str| {
        for args in commands {
            let out = tautline(server, args);
            assert_eq!(out.status.code(), Some(2), "{args:?}");
            let error = text(&out.stderr);
            assert!(error.contains(expected), "{args:?}: {error}");
            // On a busy machine even this server may seem to be silent for a while.
            let lines = error.lines().filter(|l| !l.contains("still waiting"));
            assert_eq!(lines.count(), 1, "no log beside it: {error}");
        }
    };
    let server = ApiServer::start(without_crds);
    fails_with(&server, "`tautline crds | kubectl apply -f -`");
    let message = "constraintpolicy... is forbidden: User \"eve\" cannot";
    let server = ApiServer::start(move |_| refusal(403, "Forbidden", message, None));
    fails_with(&server, "the verbs get, list and watch");
    let server = ApiServer::start(|_| refusal(401, "Unauthorized", "Unauthorized", None));
    fails_with(&server, "does not take these credentials (Unauthorized)");
    let mut server = ApiServer::start(|_| bindings(&[], ""));
    server.close();
    fails_with(&server, "Connection refused");
}
