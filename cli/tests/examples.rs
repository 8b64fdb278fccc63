//! The folders of `examples`: their cases, and what their READMEs show.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn tautline<'a>(args: impl IntoIterator<Item = &'a str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tautline"));
    command
        .args(args)
        .current_dir(ROOT)
        .env_remove("KUBECONFIG");
    command.env("HOME", "/nonexistent").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_case_of_the_examples_passes() {
    let out = tautline(["test", "examples"]);
    let printed = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{printed}{}", text(&out.stderr));
    assert!(printed.ends_with(", 0 failed\n"), "{printed}");
}

/// A README has a command, and a part of what it prints.
#[test]
fn readmes_show_the_output_of_their_command() {
    let mut shown = 0;
    for folder in std::fs::read_dir(format!("{ROOT}/examples")).unwrap() {
        let folder = folder.unwrap();
        let Ok(readme) = std::fs::read_to_string(folder.path().join("README.md")) else {
            continue;
        };
        // Its provider must run: sdk-python/tests/test_examples.py.
        let Some((_, rest)) = readme.split_once("```sh\ntautline ") else {
            continue;
        };
        if folder.file_name() == "provider-carbon" {
            continue;
        }
        let (command, rest) = rest.split_once("\n```\n\n```text\n").unwrap();
        let (expected, _) = rest.split_once("```").unwrap();
        let out = tautline(command.split(' '));
        let (printed, error) = (text(&out.stdout), text(&out.stderr));
        assert!(printed.contains(expected), "{command}:\n{printed}{error}");
        assert_eq!(error, "", "{command}: no fault of the manifests");
        assert!(readme.lines().count() <= 25, "{:?}", folder.path());
        shown += 1;
    }
    assert_eq!(shown, 6);
}
