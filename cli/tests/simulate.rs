//! `tautline simulate`, as people and scripts use it.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path, process::Command, process::Output};

use serde_json::Value;

const TRACE: &str = "rule-providers/gpu-slice/simulator/data/openb";

fn simulate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tautline"))
        .arg("simulate")
        .args(args)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn failure(args: &[&str]) -> String {
    let out = simulate(args);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stdout));
    text(&out.stderr)
}

/// A trace of one small node.
fn small(dir: &Path) {
    fs::create_dir(dir.join("pods")).unwrap();
    let nodes = "sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,65536,2,T4\n";
    let pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n\
                a,1000,1024,1,500,\nb,2000,1024,1,1000,T4\nc,1000,1024,0,0,\n";
    fs::write(dir.join("nodes.csv"), nodes).unwrap();
    fs::write(dir.join("pods/mine.csv"), pods).unwrap();
}

#[test]
fn json_has_these_fields_and_no_others() {
    let out = simulate(&[
        "--trace",
        TRACE,
        "--policy",
        "best-fit,packing",
        "-o",
        "json",
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(text(&out.stderr), "", "no bar where there is no terminal");
    let list: Vec<Value> = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(list.len(), 2);
    let mut fields: Vec<&String> = list[0].as_object().unwrap().keys().collect();
    fields.sort();
    let expected = [
        "allocation_at_100",
        "allocation_at_130",
        "dropped",
        "fragmentation_at_100",
        "policy",
        "seconds",
        "seed",
        "workload",
    ];
    assert_eq!(fields, expected);
    assert_eq!(list[0]["policy"], "best-fit");
    assert_eq!(list[0]["allocation_at_100"], 92.94);
    assert_eq!(list[1]["allocation_at_130"], 91.57);
}

#[test]
fn a_trace_without_arrivals_is_drawn_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    small(dir.path());
    let trace = dir.path().display().to_string();
    let report = dir.path().join("report");
    let out = simulate(&[
        "--trace",
        &trace,
        "--workload",
        "mine",
        "--seeds",
        "1,2",
        "--dir",
        &report.display().to_string(),
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let printed = text(&out.stderr);
    assert!(
        printed.contains("no arrivals for mine 1, mine 2"),
        "{printed}"
    );
    assert!(text(&out.stdout).contains("Means over seeds"));
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("no arrivals for mine 1"));
    assert!(
        !page.contains("http://") || !page.contains("src="),
        "nothing is fetched"
    );
    for file in ["mine.svg", "curves.csv"] {
        assert!(report.join(file).exists(), "{file}");
    }
}

#[test]
fn trouble_names_file_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    small(dir.path());
    let trace = dir.path().display().to_string();
    let error = failure(&["--trace", &trace]);
    assert!(
        error.contains("no workload \"default\"; it has mine"),
        "{error}"
    );
    let pods = dir.path().join("pods/mine.csv");
    fs::write(
        &pods,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,half\n",
    )
    .unwrap();
    let error = failure(&["--trace", &trace, "--workload", "mine"]);
    assert!(
        error.contains("mine.csv, line 2, column gpu_milli: \"half\""),
        "{error}"
    );
    fs::write(&pods, "name,cpu_milli,memory_mib,gpu_milli\na,1,1,500\n").unwrap();
    let error = failure(&["--trace", &trace, "--workload", "mine"]);
    assert!(
        error.contains("line 1, column num_gpu: there is no such column"),
        "{error}"
    );
    let error = failure(&["--trace", "nowhere"]);
    assert!(
        error.contains("nowhere/nodes.csv cannot be read"),
        "{error}"
    );
    let error = failure(&["--trace", TRACE, "--policy", "best"]);
    assert!(error.contains("there are tautline, fgd"), "{error}");
    let error = failure(&[]);
    assert!(error.contains("--trace DIR, or -f PATH"), "{error}");
}

#[test]
fn pods_that_leave_have_figures_of_their_own() {
    let out = simulate(&[
        "--trace", TRACE, "--policy", "packing", "--churn", "4", "-o", "json",
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let list: Vec<Value> = serde_json::from_slice(&out.stdout).unwrap();
    let figure = |name: &str| list[0][name].as_f64().unwrap();
    assert!((90.0..115.0).contains(&figure("churn_offered")), "{list:?}");
    assert!(figure("churn_allocation") > 80.0, "{list:?}");
    assert!((70.0..=100.0).contains(&figure("churn_placed")), "{list:?}");
}

#[test]
fn what_more_would_fit_the_example() {
    let out = simulate(&[
        "-f",
        "examples/edge-inference",
        "--policy",
        "fgd",
        "--what-if",
        "slices=125m",
        "--what-if",
        "add=1xL4x4",
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    insta::assert_snapshot!(text(&out.stdout));
}
