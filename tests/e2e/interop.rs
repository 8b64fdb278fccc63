//! Providers in other languages, and peers with Turnbuckle's contract only.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Seek, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use serde_json::{Value, json};
use tautline_core::{Reference, binding::binding_name};
use tautline_sdk::testkit;
use tautline_tests::{objects, root};

use crate::{World, fixed_costs::FixedCosts, placement::wait_for_provider};

const NODES: &[&str] = &["n1", "n2", "bad-1"];

struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Peer {
    /// Starts a provider and waits for its line `listening on HOST:PORT`.
    fn start(mut command: Command) -> (Self, u16) {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let line = BufReader::new(out).lines().next().unwrap().unwrap();
        let port = line.rsplit(':').next().unwrap().parse().unwrap();
        (Self(child), port)
    }
}

/// Builds a Go program of the repository into target/go, once: several tests run it.
fn go(folder: &'static str) -> PathBuf {
    static BUILT: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let mut built = BUILT.lock().unwrap();
    let out = root().join("target/go").join(folder.replace('/', "-"));
    if built.contains(folder) {
        return out;
    }
    let status = Command::new("go")
        .args(["build", "-o"])
        .arg(&out)
        .arg(".")
        .current_dir(root().join(folder))
        .env("CGO_ENABLED", "0")
        .status()
        .expect("Go is needed for this test");
    assert!(status.success(), "go build of {folder} failed");
    built.insert(folder);
    out
}

fn command(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// Fifty random tuples of up to three targets, some without a cluster or a namespace.
fn tuples() -> Vec<(String, BTreeMap<Arc<str>, Reference>)> {
    let mut random = fastrand::Rng::with_seed(39);
    let mut word = move |least: usize| {
        let length = random.usize(least..9);
        std::iter::repeat_with(|| random.lowercase())
            .take(length)
            .collect::<String>()
    };
    let kinds = ["Pod", "Endpoints", "NetworkService"];
    let mut one = |i: usize| {
        let target = |j: usize| {
            let reference = Reference {
                cluster: word(0),
                namespace: word(0),
                api_version: word(1) + "/v1",
                kind: kinds[(i + j) % kinds.len()].to_owned(),
                name: word(1),
            };
            (word(3).into(), reference)
        };
        let targets: BTreeMap<_, _> = (0..=i % 3).map(target).collect();
        (format!("offer-{i}"), targets)
    };
    (0..50).map(&mut one).collect()
}

#[test]
fn bindings_have_turnbuckles_names() {
    let tuples = tuples();
    let line = |(offer, targets): &(String, BTreeMap<Arc<str>, Reference>)| {
        let parts = |(target, r): (&Arc<str>, &Reference)| {
            let parts = json!([r.cluster, r.namespace, r.api_version, r.kind, r.name]);
            (target.to_string(), parts)
        };
        let targets: BTreeMap<_, _> = targets.iter().map(parts).collect();
        json!({"offer": offer, "targets": targets}).to_string()
    };
    let mut input = tempfile::tempfile().unwrap();
    for tuple in &tuples {
        writeln!(input, "{}", line(tuple)).unwrap();
    }
    input.rewind().unwrap();
    let peer = go("tests/turnbuckle-peer");
    let printed = command(&peer, &["names"]).stdin(input).output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let printed = String::from_utf8(printed.stdout).unwrap();
    let names: Vec<String> = tuples
        .iter()
        .map(|(offer, targets)| binding_name(offer, targets))
        .collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), names);
}

#[tokio::test]
async fn extender_works_with_providers_in_other_languages() {
    let (peer, go_provider) = (go("tests/turnbuckle-peer"), go("examples/provider-go"));
    // A Turnbuckle-shaped client calls a provider made with our SDK.
    let ours = testkit::start(FixedCosts::new(&[("n1", 4), ("n2", -1)]))
        .await
        .unwrap();
    let address = ours.address.to_string();
    let called = {
        let peer = peer.clone();
        tokio::task::spawn_blocking(move || command(&peer, &["call", &address]).output().unwrap())
    };
    let called = called.await.unwrap();
    let answer: Value = serde_json::from_slice(&called.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&called.stderr)));
    assert_eq!(answer["costs"], json!({"n1": 4, "n2": -1}));
    assert_eq!(answer["compliance"], "Compliant");

    // Our extender calls a provider with Turnbuckle's proto only, and providers in Go and Python
    // with ours.
    let world = World::start(NODES, &["--provider-deadline=3s"])
        .await
        .unwrap();
    let client = &world.plane.client;
    let listen = ["-listen", "127.0.0.1:0"];
    let (_old, old_port) = Peer::start(command(&peer, &["serve", listen[0], listen[1]]));
    let (_go, go_port) = Peer::start(command(&go_provider, &listen));
    let mut rules = vec![("old", old_port), ("spread", go_port)];
    let python = python();
    let _python = python.map(|(program, script)| {
        let mut c = Command::new(program);
        c.arg(script).args(["--listen", "127.0.0.1:0"]);
        let (peer, port) = Peer::start(c);
        rules.push(("pyspread", port));
        peer
    });
    for (rule, port) in &rules {
        objects::provider(client, "default", rule, *port, &[rule])
            .await
            .unwrap();
        let targets = json!({"providerUnavailable": "Reject", "targets": [
            {"name": "one", "kind": "Pod", "labelSelector": {"matchLabels": {"app": rule}}},
            {"name": "other", "kind": "Pod", "labelSelector": {"matchLabels": {"app": rule}}}]});
        objects::policy(client, "default", rule, json!({"name": rule}), targets)
            .await
            .unwrap();
        wait_for_provider(&world, rule).await;
        objects::pod(client, "default", &format!("{rule}-0"), rule)
            .await
            .unwrap();
        let first = world.bound(&format!("{rule}-0")).await;
        if *rule != "old" {
            // Placed on what the extender knows: until it knows the first pod's node, the
            // second may go there too.
            let elsewhere = |plan: &Value| {
                let best = plan["nodes"][0]["node"].as_str();
                best.is_some_and(|best| best != first)
            };
            let extender = &world.extender;
            extender
                .wait_for_plan("default", rule, NODES, elsewhere)
                .await;
        }
        objects::pod(client, "default", &format!("{rule}-1"), rule)
            .await
            .unwrap();
        let second = world.bound(&format!("{rule}-1")).await;
        if *rule == "old" {
            // Its costs follow the order of the question; bad ones are negative.
            assert!(
                first.starts_with('n') && second.starts_with('n'),
                "{first} {second}"
            );
        } else {
            assert_ne!(first, second, "{rule} keeps peers apart");
        }
        println!("{rule}: {first}, {second}");
    }
}

#[tokio::test]
async fn providers_in_other_languages_keep_the_contract() {
    let mut providers = vec![
        ("old", command(&go("tests/turnbuckle-peer"), &["serve"])),
        (
            "spread",
            command(&go("examples/provider-go"), &["-listen", "127.0.0.1:0"]),
        ),
    ];
    if let Some((program, script)) = python() {
        let mut python = Command::new(program);
        python.arg(script).args(["--listen", "127.0.0.1:0"]);
        providers.push(("spread", python));
    }
    for (rule, mut provider) in providers {
        // The old one prints every request, of 10,000 nodes too.
        provider.stderr(Stdio::null());
        let (_peer, port) = Peer::start(provider);
        // A busy machine is no fault of theirs.
        let minute = Duration::from_secs(60);
        let report = tautline_conformance::run(tautline_conformance::Config {
            nodes: NODES.iter().map(|node| (*node).to_owned()).collect(),
            deadline: minute,
            evaluate_deadline: minute,
            patience: minute,
            start_within: minute,
            timeout: 5 * minute,
            ..tautline_conformance::Config::new(format!("127.0.0.1:{port}"), rule)
        });
        let report = report.await.unwrap();
        assert_eq!(report.failed(), 0, "{}", report.tap());
    }
}

/// A Python environment with the SDK, and the example, copied to another folder as its users do;
/// `None` without Python.
fn python() -> Option<(PathBuf, PathBuf)> {
    static PYTHON: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    PYTHON.get_or_init(prepare_python).clone()
}

fn prepare_python() -> Option<(PathBuf, PathBuf)> {
    let folder = root().join("examples/provider-python");
    let venv = root().join("target/python-provider");
    let program = venv.join("bin/python");
    let ready = |c: &mut Command| c.stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !ready(command(Path::new("python3"), &["--version"]).stderr(Stdio::null())) {
        println!("skipped: the Python provider, as there is no python3");
        return None;
    }
    if !ready(command(&program, &["-c", "import tautline_sdk"]).stderr(Stdio::null())) {
        assert!(
            ready(Command::new("python3").args(["-m", "venv"]).arg(&venv)),
            "no venv"
        );
        let mut pip = command(
            &program,
            &["-m", "pip", "install", "-q", "-r", "requirements.txt"],
        );
        assert!(ready(pip.current_dir(&folder)), "pip install failed");
    }
    let copy = venv.join("example");
    std::fs::create_dir_all(&copy).unwrap();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let from = entry.unwrap().path();
        if from.is_file() {
            std::fs::copy(&from, copy.join(from.file_name().unwrap())).unwrap();
        }
    }
    Some((program, copy.join("provider.py")))
}
