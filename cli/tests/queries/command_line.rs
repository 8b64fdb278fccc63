//! Arguments, help, and the name that kubectl gives the binary.

use std::process::Command;

use crate::{api_server::ApiServer, bindings, tautline, text, without_crds};

#[test]
fn bad_command_lines_name_the_fix() {
    let server = ApiServer::start(|_| bindings(&[], ""));
    for (args, expected) in [
        (
            &["get", "bindings", "--compliance", "bad"][..],
            "[possible values: Error, Violation, Limit, Pending, Compliant]",
        ),
        (&["watch", "--compliance", "bad"], "possible values: Error"),
        (&["get", "bindings", "shop/a-1"], "its namespace with -n"),
        (&["get", "bindings", "-n", "../x"], "its namespace with -n"),
        (&["get", "offers", "A"], "lower-case letters"),
        (
            &["get", "offers", "-A", "-n", "shop"],
            "cannot be used with",
        ),
        (&["get", "offers", "a", "-A"], "cannot be used with"),
        (&["get", "pods"], "unrecognized subcommand 'pods'"),
        (&["describe", "binding"], "<NAME>"),
    ] {
        let out = tautline(&server, args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        let error = text(&out.stderr);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn plugin_help_says_kubectl() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("kubectl-tautline");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tautline"), &plugin).unwrap();
    let printed = |args: &[&str]| {
        let out = Command::new(&plugin).args(args).output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout)
    };
    let help = printed(&["get", "bindings", "--help"]);
    assert!(
        help.contains("Usage: kubectl tautline get bindings"),
        "{help}"
    );
    assert!(
        help.contains("\n  kubectl tautline get bindings -A"),
        "{help}"
    );
    assert!(printed(&["watch", "--help"]).contains("Usage: kubectl tautline watch"));
    assert!(printed(&["--help"]).contains("Usage: kubectl tautline [OPTIONS]"));

    let server = ApiServer::start(without_crds);
    let out = Command::new(&plugin)
        .args(["get", "bindings", "--kubeconfig"])
        .arg(&server.kubeconfig)
        .output()
        .unwrap();
    let error = text(&out.stderr);
    assert!(
        error.contains("`kubectl tautline crds | kubectl apply"),
        "{error}"
    );
}

#[test]
fn help_has_an_example() {
    for args in [
        &["get"][..],
        &["get", "policies"],
        &["get", "offers"],
        &["get", "bindings"],
        &["describe"],
        &["describe", "binding"],
        &["describe", "offer"],
        &["watch"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tautline"));
        let out = command.args(args).arg("--help").output().unwrap();
        let help = text(&out.stdout);
        assert!(help.contains("Example"), "{args:?}: {help}");
        assert!(help.contains("\n  tautline "), "{args:?}: {help}");
    }
}
