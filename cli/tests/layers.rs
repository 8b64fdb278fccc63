//! The direction of dependencies between the workspace's crates, by their folders: a crate
//! depends on lower layers only, and within its layer on its own component.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

use std::{path::Path, process::Command};

use serde_json::Value;

/// The layer of each folder, the lowest first. The longest folder that holds a crate counts.
const LAYERS: [(&str, usize); 24] = [
    ("crates/types", 0),
    ("crates/core", 1),
    ("crates/serve", 1),
    ("crates/traces", 1),
    ("proto", 1),
    ("crates/api", 2),
    // The runtime, and libraries without one.
    ("crates", 3),
    ("crates/agent-link", 4),
    ("crates/certificates", 4),
    ("crates/conformance", 4),
    ("crates/provider-client", 4),
    ("sdk", 4),
    ("crates/pod-requeue", 5),
    ("admission", SERVICES),
    ("controller", SERVICES),
    ("rule-providers/gpu-slice", SERVICES),
    ("rule-providers/latency", SERVICES),
    ("rule-providers/scripted", SERVICES),
    ("scheduler-extender", SERVICES),
    ("console", SERVICES + 1),
    ("cli", SERVICES + 2),
    // Not part of the product.
    ("examples", OUTSIDE),
    ("proto/codegen", OUTSIDE),
    ("tests", OUTSIDE),
];
const SERVICES: usize = 6;
const OUTSIDE: usize = 9;

/// Crates that `crates/core` and `crates/types` must not use: they do no I/O and await nothing.
const IMPURE: [&str; 6] = ["axum", "hyper", "kube", "kube-runtime", "tokio", "tonic"];

struct Package {
    folder: String,
    /// Names of its dependencies, without those of its tests and build scripts.
    dependencies: Vec<String>,
    name: String,
    is_published: bool,
    /// Names of the dependencies with a path but without a version.
    without_version: Vec<String>,
}

fn packages() -> Vec<Package> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--no-deps", "--format-version=1"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo metadata: {output:?}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let package = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().strip_prefix(root).unwrap();
        let all = package["dependencies"].as_array().unwrap().iter();
        let normal: Vec<_> = all.filter(|d| d["kind"].is_null()).collect();
        let name = |d: &&Value| d["name"].as_str().unwrap().to_owned();
        let any_version = normal.iter().filter(|d| d["req"] == "*");
        Package {
            folder: folder.to_str().unwrap().to_owned(),
            dependencies: normal.iter().map(&name).collect(),
            name: name(&package),
            is_published: package["publish"].is_null(),
            without_version: any_version.map(name).collect(),
        }
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(package).collect()
}

/// The entry of [`LAYERS`] that holds a folder.
fn layer(folder: &str) -> Option<(&'static str, usize)> {
    let holds = |(prefix, _): &(&str, usize)| Path::new(folder).starts_with(prefix);
    let entries = LAYERS.into_iter().filter(holds);
    entries.max_by_key(|(prefix, _)| prefix.len())
}

/// The reason why a crate in `from` must not depend on one in `to`.
fn refusal(from: &str, to: &str) -> Option<String> {
    let Some(((component, level), (other, below))) = layer(from).zip(layer(to)) else {
        return Some(format!(
            "{from} or {to} has no layer: add its folder to LAYERS"
        ));
    };
    let shared = component != "crates" && component == other;
    let allowed = below < level || shared || level == OUTSIDE;
    (!allowed).then(|| format!("{to} is not below {from} (layers {below} and {level})"))
}

#[test]
fn dependencies_point_to_lower_layers() {
    let packages = packages();
    assert!(packages.len() > 20, "{} packages", packages.len());
    let mut refused = Vec::new();
    for package in &packages {
        for name in &package.dependencies {
            if let Some(dependency) = packages.iter().find(|p| p.name == *name) {
                let why = refusal(&package.folder, &dependency.folder);
                refused.extend(why.map(|why| format!("{} -> {name}: {why}", package.name)));
            }
        }
    }
    assert!(
        refused.is_empty(),
        "CONTRIBUTING.md, Rules: dependencies point inward\n{}",
        refused.join("\n")
    );
}

#[test]
fn published_crates_need_published_crates_with_versions() {
    let packages = packages();
    let (mut published, mut refused) = (Vec::new(), Vec::new());
    for package in packages.iter().filter(|p| p.is_published) {
        published.push(package.name.as_str());
        let private = |name: &&String| packages.iter().any(|p| p.name == **name && !p.is_published);
        for name in package.dependencies.iter().filter(private) {
            refused.push(format!(
                "{} -> {name}: it has publish = false",
                package.name
            ));
        }
        for name in &package.without_version {
            refused.push(format!(
                "{} -> {name}: add its version to Cargo.toml, [workspace.dependencies]",
                package.name
            ));
        }
    }
    published.sort_unstable();
    let expected = [
        "tautline-proto",
        "tautline-sdk",
        "tautline-serve",
        "tautline-traces",
        "tautline-types",
    ];
    assert_eq!(
        published, expected,
        "crates without publish.workspace = true"
    );
    assert!(
        refused.is_empty(),
        "CONTRIBUTING.md, Published crates\n{}",
        refused.join("\n")
    );
}

#[test]
fn core_is_pure() {
    let packages = packages();
    for folder in ["crates/core", "crates/types"] {
        let core = packages.iter().find(|p| p.folder == folder).unwrap();
        for name in &core.dependencies {
            assert!(
                !IMPURE.contains(&name.as_str()),
                "{} -> {name}: it does no I/O and awaits nothing",
                core.name
            );
        }
    }
}

#[test]
fn refusal_names_both_folders() {
    let refused = refusal("crates/api", "rule-providers/gpu-slice/placement").unwrap();
    assert_eq!(
        refused,
        "rule-providers/gpu-slice/placement is not below crates/api (layers 6 and 2)"
    );
    for (from, to) in [
        ("controller", "scheduler-extender"),
        ("crates/new", "crates/runtime"),
        ("rule-providers/latency/provider", "rule-providers/scripted"),
        ("crates/core", "proto"),
        ("sdk", "crates/provider-client"),
        ("cli", "tests"),
        ("new", "crates/core"),
    ] {
        assert!(refusal(from, to).is_some(), "{from} -> {to}");
    }
    for (from, to) in [
        ("admission/mutating-policy", "admission/cel"),
        (
            "rule-providers/latency/agent",
            "rule-providers/latency/protocol",
        ),
        ("cli", "crates/new"),
        ("tests/bench/soak", "tests"),
        ("proto/codegen", "proto"),
    ] {
        assert_eq!(refusal(from, to), None, "{from} -> {to}");
    }
}
