//! `-f` of `plan`, `gpu`, `simulate` and `check`: its sources and its warnings.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

mod faults;
mod files;
mod planned_pods;

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// The binary with this standard input, from the root of the repository.
fn tautline(input: &str, args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tautline"))
        .args(args)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may have ended.
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn pods(out: &Output) -> Vec<String> {
    let list: Value = serde_json::from_slice(&out.stdout).unwrap();
    let pods = list["pods"].as_array().unwrap().iter();
    pods.map(|p| p["pod"].as_str().unwrap().to_owned())
        .collect()
}

fn write(dir: &std::path::Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

const WEB: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  \
                   replicas: 2\n  template: {metadata: {labels: {app: web}}, spec: {containers: []}}\n";
