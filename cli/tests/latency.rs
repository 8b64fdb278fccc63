//! `tautline latency` through the real binary, against a provider's own admin port.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::{Command, Output},
    sync::Arc,
};

use serde_json::Value;
use tautline_core::{index::Object, model};
use tautline_latency::{Latency, Table, ZONE, report::Pages};
use tautline_runtime::{cluster_store::ClusterStore, tasks::Tasks};
use tautline_sdk::{Config, Server};

/// A provider, and the runtime that it ends with.
struct Provider {
    url: String,
    _runtime: tokio::runtime::Runtime,
}

fn provider(nodes: &[(&str, &str)], table: &str) -> Provider {
    let store = ClusterStore::default();
    for (name, zone) in nodes {
        store.apply(Object::Node(model::Node {
            name: (*name).into(),
            labels: [(ZONE, *zone)].into_iter().collect(),
            ..model::Node::default()
        }));
    }
    let provider = Latency::new(store);
    let mut rows = Table::default();
    rows.add(table).unwrap();
    provider.set_table(rows);

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let config = Config {
        listen: any,
        admin: Some(any),
        ..Config::default()
    };
    let mut server = runtime.block_on(Server::bind(config)).unwrap();
    let pages = Pages::new(provider.clone());
    server.admin_pages(move |path, query| pages.clone().answer(path, query));
    let url = format!("http://{}", server.admin_address().unwrap());
    let mut tasks = Tasks::default();
    let entered = runtime.enter();
    server.spawn(Arc::new(provider), &mut tasks).unwrap();
    runtime.spawn(tasks.run(std::future::pending()));
    drop(entered);
    Provider {
        url,
        _runtime: runtime,
    }
}

fn run(url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tautline"));
    let command = command
        .arg("latency")
        .args(args)
        .env("TAUTLINE_LATENCY", url);
    command
        .env_remove("COLUMNS")
        .env("LC_ALL", "C")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn zones_and_pairs_of_a_table() {
    let nodes = [("a1", "a"), ("a2", "a"), ("b1", "b")];
    let provider = provider(&nodes, "a,a,200us\na,b,12ms\n");
    let out = run(&provider.url, &["matrix"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let map = text(&out.stdout);
    assert!(map.contains("a =200us.  =12ms#"), "{map}");

    let out = run(&provider.url, &["matrix", "-o", "svg", "--zone", "a"]);
    assert!(
        text(&out.stdout).contains("a1 to a2: 200us configured"),
        "{}",
        text(&out.stdout)
    );
    let out = run(&provider.url, &["pair", "a1", "b1"]);
    let pair = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(
        pair.contains("Rules use:         12ms, configured"),
        "{pair}"
    );
    let out = run(&provider.url, &["pair", "a1", "b1", "-o", "json"]);
    let pair: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(pair["told"]["rttMicros"], 12_000);
    let out = run(&provider.url, &["matrix", "--nodes", "a1,b1", "-o", "yaml"]);
    assert!(
        text(&out.stdout).contains("rttMicros: 12000"),
        "{}",
        text(&out.stdout)
    );

    let out = run(&provider.url, &["top"]);
    assert_eq!(
        (out.status.code(), text(&out.stdout).as_str()),
        (Some(0), "")
    );
    assert!(text(&out.stderr).contains("no active rule of latency names a pair"));
}

#[test]
fn missing_nodes_and_servers_name_the_fix() {
    let provider = provider(&[("a1", "a"), ("b1", "b")], "");
    for (args, code, expected) in [
        (
            &["pair", "a1", "b2"][..],
            1,
            "there is no node b2; did you mean b1",
        ),
        (&["matrix", "--zone", "c"], 1, "there is no zone c"),
        (&["matrix"], 1, "no measurements and no tables"),
        (&["top", "-n", "0"], 2, "1..=1000"),
        (&["pair", "a1"], 2, "<TO>"),
    ] {
        let out = run(&provider.url, args);
        let error = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
    let out = run(&provider.url, &["pair", "a1", "b1"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stdout).contains("a1 and b1 have no agent"),
        "{}",
        text(&out.stdout)
    );

    let out = run("http://127.0.0.1:1", &["top"]);
    let error = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{error}");
    assert!(error.contains("leave out --url"), "{error}");
}

#[test]
fn help_has_an_example() {
    for args in [&[][..], &["matrix"], &["pair"], &["top"]] {
        let mut args = args.to_vec();
        args.push("--help");
        let help = text(&run("", &args).stdout);
        assert!(help.contains("Example"), "{args:?}: {help}");
    }
}
