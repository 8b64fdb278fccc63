//! The words of commands without a usable cluster: the problem and its fix, alike in all.

use std::{
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    api_server::{Answer, ApiServer},
    command, refusal, text,
};

const COMMANDS: [&[&str]; 10] = [
    &["plan"],
    &["get", "bindings"],
    &["describe", "offer", "a"],
    &["watch"],
    &["gpu", "top"],
    &["latency", "matrix"],
    &["explain", "web-0"],
    &["doctor"],
    &["version"],
    &["ui", "--listen", "127.0.0.1:0"],
];

fn kubeconfig(dir: &Path, cluster: &Value, user: &Value) -> PathBuf {
    let file = dir.join("config");
    let config = json!({
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    });
    std::fs::write(&file, config.to_string()).unwrap();
    file
}

fn every_command_says(kubeconfig: &Path, expected: &[&str]) {
    for args in COMMANDS {
        let out = command(kubeconfig, args).output().unwrap();
        let error = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {error}");
        for part in expected {
            assert!(error.contains(part), "{args:?}: {error}");
        }
        let lines = error.lines().filter(|l| !l.contains("still waiting"));
        assert_eq!(lines.count(), 1, "{args:?}: no log line: {error}");
        assert!(!error.contains("ServiceError"), "{args:?}: {error}");
    }
}

#[test]
fn without_a_connection() {
    let mut server = ApiServer::start(|_| Answer::text(200, ""));
    server.close();
    let url = server.url();
    let what = format!("no connection to {url}: Connection refused");
    every_command_says(&server.kubeconfig, &[&what, "; is the cluster up, and"]);
}

#[test]
fn without_credentials() {
    let server = ApiServer::start(|_| refusal(401, "Unauthorized", "Unauthorized", None));
    let expected = "does not take these credentials (Unauthorized); renew";
    every_command_says(&server.kubeconfig, &[expected]);
}

#[test]
fn with_a_login_page() {
    let server = ApiServer::start(|_| Answer::text(200, "<html>log in</html>"));
    every_command_says(&server.kubeconfig, &["a login page of a proxy?"]);
}

#[test]
fn with_a_proxy_that_is_down() {
    let dir = tempfile::tempdir().unwrap();
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let proxy = format!("http://127.0.0.1:{port}");
    let cluster = json!({"server": "https://k8s.example:6443", "proxy-url": proxy});
    let file = kubeconfig(dir.path(), &cluster, &json!({}));
    let what = format!("the proxy {proxy} fails: Connection refused");
    every_command_says(&file, &[&what, "NO_PROXY"]);
}

#[test]
fn with_a_server_without_tls() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            _ = stream
                .unwrap()
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let server = format!("https://127.0.0.1:{port}");
    let file = kubeconfig(dir.path(), &json!({"server": server}), &json!({}));
    every_command_says(&file, &["does not answer with TLS"]);
}

#[test]
fn with_a_missing_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let exec = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin",
        "interactiveMode": "Never",
    }});
    let cluster = json!({"server": "http://127.0.0.1:1"});
    let file = kubeconfig(dir.path(), &cluster, &exec);
    let expected = ["plugin \"no-such-plugin\" cannot be run", "; install it"];
    every_command_says(&file, &expected);
}

#[test]
fn with_an_address_that_is_not_kubernetes() {
    let page = "<html><h1>Not here</h1></html>";
    for answer in ["404 page not found\n", page] {
        let server = ApiServer::start(move |_| Answer::text(404, answer));
        every_command_says(&server.kubeconfig, &["of a Kubernetes API server?"]);
    }
    let server = ApiServer::start(move |_| Answer::text(403, page));
    for args in [
        &["get", "bindings"][..],
        &["describe", "offer", "a"],
        &["watch"],
        &["plan"],
    ] {
        let out = command(&server.kubeconfig, args).output().unwrap();
        let error = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {error}");
        let expected =
            "an HTML page with code 403; is the address that of a Kubernetes API server?";
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn without_the_file_of_kubeconfig() {
    let out = Command::new(env!("CARGO_BIN_EXE_tautline"))
        .arg("plan")
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("KUBECONFIG", "/nonexistent/a")
        .output()
        .unwrap();
    let error = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{error}");
    assert!(
        error.contains("/nonexistent/a named by KUBECONFIG"),
        "{error}"
    );
}

#[test]
fn plan_names_the_optional_kinds_that_it_may_not_read() {
    let server = ApiServer::start(|path| match path {
        _ if path.contains("resourceslices") => {
            refusal(403, "Forbidden", "resourceslices is forbidden", None)
        }
        _ if path.contains("costproviders") => Answer::text(404, "404 page not found\n"),
        _ => Answer::json(200, &json!({"metadata": {}, "items": []})),
    });
    let out = command(&server.kubeconfig, &["plan", "-o", "json"])
        .output()
        .unwrap();
    let (error, plan) = (text(&out.stderr), text(&out.stdout));
    assert_eq!(out.status.code(), Some(0), "{error}");
    assert!(
        error.contains("warning: resourceslices in all namespaces cannot be read"),
        "{error}"
    );
    assert!(!error.contains("costproviders"), "{error}");
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let warning = plan["warnings"][0].as_str().unwrap();
    assert!(warning.contains("resourceslices is forbidden"), "{plan}");
}
