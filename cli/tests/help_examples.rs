//! The examples of every `--help`: those that need no cluster run, in a copy of the repository's
//! examples, and the others are parsed.

#![cfg(unix)]
// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

const BINARY: &str = env!("CARGO_BIN_EXE_tautline");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Stands for the reader's cluster: prints objects of an example.
const KUBECTL: &str = "#!/bin/sh
case $1 in
get) for file in examples/near-server/*.yaml examples/near-server/tests/cluster.yaml; do
    echo ---; cat \"$file\"
done ;;
*) cat ;;
esac
";
/// Stand for the reader's own files.
const POLICY: &str = r#"{"rules": [{"namespaces": ["ml-team"], "workloadType": "training"}]}"#;
const MUTATION: &str = "examples/mutation-policies/1-no-gpu.yaml";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Collects the examples of a command and of those below it, each as one line.
fn collect(command: &[&str], found: &mut Vec<String>) {
    let mut help = Command::new(BINARY);
    let help = text(&help.args(command).arg("--help").output().unwrap().stdout);
    let help = help.replace(" \\\n  ", " ");
    found.extend(help.lines().filter_map(example));
    let names = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    for line in names.lines().take_while(|line| !line.is_empty()) {
        // Descriptions that continue are indented further.
        let name = line.strip_prefix("  ").unwrap_or_default();
        let name = name.split(' ').next().unwrap_or_default();
        if !name.is_empty() && name != "help" {
            collect(&[command, &[name]].concat(), found);
        }
    }
}

/// Returns the example of a line: a command, perhaps with variables before it.
fn example(line: &str) -> Option<String> {
    let line = line.strip_prefix("  ")?;
    let mut words = line.split(' ').skip_while(|word| word.contains('='));
    let command = matches!(words.next(), Some("tautline" | "kubectl"));
    let is_example = command && words.next().is_some_and(|word| !word.is_empty());
    is_example.then(|| line.to_owned())
}

/// Returns whether an example ends by itself without a cluster.
fn runs_here(example: &str) -> bool {
    let has = |part: &&str| example.contains(part);
    let commands = ["demo", "test ", "check ", "crds", "completion", "man "];
    let reads_files = commands.map(|command| format!("tautline {command}"));
    let serves = ["tautline ui", "--ui"];
    let alone = [" -f ", " --trace ", " --render"].iter().any(has)
        || example.starts_with("kubectl")
        || reads_files.iter().any(|command| example.contains(command));
    alone && !serves.iter().any(has)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true if entry.file_name() == ".venv" => {}
            true => copy(&entry.path(), &to),
            false => _ = fs::copy(entry.path(), to).unwrap(),
        }
    }
}

fn run(example: &str, folder: &Path, log: &str) -> Output {
    let path = std::env::var("PATH").unwrap();
    let script = format!("set -o pipefail; {example}");
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(folder);
    shell.env_remove("KUBECONFIG").env("TAUTLINE_LOG", log);
    shell.env("HOME", folder).env("POD_IP", "10.1.2.3");
    let bin = folder.join("bin");
    let shell = shell.env("PATH", format!("{}:{path}", bin.display()));
    shell.output().unwrap()
}

#[test]
fn examples_of_help_work() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    copy(&Path::new(ROOT).join("examples"), &folder.join("examples"));
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
    link(&Path::new(ROOT).join("rule-providers"), "rule-providers");
    fs::create_dir(folder.join("bin")).unwrap();
    link(Path::new(BINARY), "bin/tautline");
    let kubectl = folder.join("bin/kubectl");
    fs::write(&kubectl, KUBECTL).unwrap();
    fs::set_permissions(
        &kubectl,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    fs::write(folder.join("policy.json"), POLICY).unwrap();
    for name in ["policy.yaml", "binding.yaml"] {
        link(&Path::new(ROOT).join(MUTATION), name);
    }
    fs::create_dir_all(folder.join(".config/fish/completions")).unwrap();

    let mut examples = Vec::new();
    collect(&[], &mut examples);
    let (mut ran, mut parsed) = (0, 0);
    for example in &examples {
        if runs_here(example) {
            let out = run(example, folder, "");
            let shown = text(&out.stderr);
            // 1 is a negative result, such as a pod without a node.
            assert!(
                matches!(out.status.code(), Some(0 | 1)),
                "{example}: {shown}"
            );
            ran += 1;
        } else {
            // The log filter is read after the command line, and before anything is done.
            let out = run(example, folder, "inf");
            let shown = text(&out.stderr);
            assert!(
                shown.contains("\"inf\" is not a level"),
                "{example}: {shown}"
            );
            parsed += 1;
        }
    }
    assert!(ran > 25 && parsed > 35, "{ran} {parsed}: {examples:#?}");
}
