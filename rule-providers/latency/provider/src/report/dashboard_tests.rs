//! Tests: the Grafana dashboard shows exactly the registered metrics.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use serde_json::Value;
use tautline_proto::ruleprovider::{EvaluateRequest, rule_provider_client::RuleProviderClient};
use tautline_runtime::{cluster_store::ClusterStore, tasks::Tasks};
use tautline_sdk::{Config, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    Latency, Network, Table,
    network::pair_store::{PairCounts, Refusal},
};

const DASHBOARD: &str = include_str!("../../../../../deploy/dashboards/latency.json");

/// The metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let name = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    let words = text.split(|c| !name(c));
    words.filter(|w| w.starts_with("tautline_")).collect()
}

/// All values of a field, at any depth.
fn fields<'a>(value: &'a Value, field: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get(field));
            map.values().for_each(|v| fields(v, field, found));
        }
        Value::Array(list) => list.iter().for_each(|v| fields(v, field, found)),
        _ => {}
    }
}

fn all<'a>(dashboard: &'a Value, field: &str) -> Vec<&'a Value> {
    let mut found = Vec::new();
    fields(dashboard, field, &mut found);
    found
}

#[test]
fn dashboard_has_a_variable_data_source_and_no_overlaps() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    assert_eq!(dashboard["schemaVersion"], 42);
    let sources = all(&dashboard, "datasource");
    assert!(!sources.is_empty());
    assert!(
        sources.iter().all(|s| s["uid"] == "${datasource}"),
        "{sources:?}"
    );
    let variables = all(&dashboard["templating"], "name");
    assert!(
        variables.contains(&&Value::from("datasource")),
        "{variables:?}"
    );
    let ids: BTreeSet<u64> = all(&dashboard, "id")
        .iter()
        .filter_map(|i| i.as_u64())
        .collect();
    let places = all(&dashboard, "gridPos");
    assert_eq!(ids.len(), places.len());
    let mut cells = BTreeSet::new();
    for place in places {
        let at = |field: &str| place[field].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && cells.insert((x, y)), "{place}");
            }
        }
    }
}

#[tokio::test]
async fn dashboard_shows_every_metric_of_the_provider() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let config = Config {
        listen: any,
        admin: Some(any),
        ..Config::default()
    };
    let mut server = Server::bind(config).await.unwrap();
    let (grpc, admin) = (server.address(), server.admin_address().unwrap());
    let network = Network::new(ClusterStore::default(), false);
    let provider = Latency::with_network(network.clone());
    network.metrics.register("", &mut server.registry);
    provider.metrics.register("", &mut server.registry);
    // Metrics with labels appear with their first value.
    network.metrics.refuse_report(Refusal::SameNode);
    network.metrics.set_pairs(PairCounts::default());
    provider.metrics.answered("latency", ["measured"]);
    provider.metrics.verification("answered", 1);
    provider.set_table(Table::default());
    let mut tasks = Tasks::default();
    server.spawn(Arc::new(provider), &mut tasks).unwrap();
    let mut client = RuleProviderClient::connect(format!("http://{grpc}"))
        .await
        .unwrap();
    client.evaluate(EvaluateRequest::default()).await.unwrap();

    let mut stream = tokio::net::TcpStream::connect(admin).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).await.unwrap();

    let registered: BTreeSet<&str> = named(&metrics);
    let dashboard = named(DASHBOARD);
    let ours: Vec<&&str> = dashboard
        .iter()
        .filter(|m| !m.starts_with("tautline_latency_agent_"))
        .collect();
    assert!(ours.len() > 10, "{ours:?}");
    for metric in ours {
        assert!(
            registered.contains(metric),
            "{metric} is not in:\n{metrics}"
        );
    }
    let values = metrics.lines().filter(|line| !line.starts_with('#'));
    let shown = values.filter_map(|line| line.split(['{', ' ']).next());
    for metric in shown.filter(|m| m.starts_with("tautline_latency_")) {
        assert!(
            dashboard.contains(metric),
            "{metric} is not on the dashboard"
        );
    }
}
