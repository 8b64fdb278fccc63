//! `get`, `describe`, `watch` and others through the real binary, against a server
//! that answers from a script.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

mod api_server;
mod command_line;
mod describe;
mod explain;
mod export;
mod faults;
mod get;
mod gpu;
mod kubeconfig;
mod watch;

use std::{
    path::Path,
    process::{Command, Output},
};

use api_server::{Answer, ApiServer};
use serde_json::{Value, json};

pub fn command(kubeconfig: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tautline"));
    command
        .args(args)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .env("HOME", "/nonexistent");
    command
}

pub fn tautline(server: &ApiServer, args: &[&str]) -> Output {
    command(&server.kubeconfig, args).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn binding(name: &str, compliance: &str) -> Value {
    json!({
        "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyBinding",
        "metadata": {
            "namespace": "shop", "name": name, "resourceVersion": "5",
            "creationTimestamp": "2020-01-01T00:00:00Z",
        },
        "spec": {"offer": name.split('-').next(), "targets": {
            "source": {"kind": "Pod", "namespace": "shop", "name": "client"},
        }},
        "status": {"compliance": compliance, "firstReason": "because", "later": {"field": true},
            "details": [{"policy": "near", "compliance": compliance, "ruleDetails": [
                {"rule": "latency", "compliance": compliance, "provider": "shop/latency",
                 "reason": "because"}]}]},
    })
}

pub fn list(kind: &str, items: &[Value], next: &str) -> Answer {
    Answer::json(
        200,
        &json!({
            "apiVersion": "constraint.ciena.com/v1alpha1", "kind": format!("{kind}List"),
            "metadata": {"resourceVersion": "9", "continue": next}, "items": items,
        }),
    )
}

pub fn bindings(items: &[Value], next: &str) -> Answer {
    list("ConstraintPolicyBinding", items, next)
}

pub fn refusal(code: u16, reason: &str, message: &str, name: Option<&str>) -> Answer {
    let mut status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    if let Some(name) = name {
        status["details"] = json!({"name": name});
    }
    Answer::json(code, &status)
}

/// The answers of a cluster without the custom resource definitions.
pub fn without_crds(path: &str) -> Answer {
    match path {
        "/version" => Answer::json(
            200,
            &json!({
                "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "",
                "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
            }),
        ),
        _ => Answer::text(404, "404 page not found\n"),
    }
}
