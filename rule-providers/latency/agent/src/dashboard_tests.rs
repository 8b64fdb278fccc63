//! Tests: the Grafana dashboard shows registered metrics of agents.

use std::collections::BTreeSet;

use crate::metrics::Metrics;
use prometheus_client::{encoding::text::encode, registry::Registry};

const DASHBOARD: &str = include_str!("../../../../deploy/dashboards/latency.json");

/// The agents' metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let name = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    let words = text.split(|c| !name(c));
    words
        .filter(|w| w.starts_with("tautline_latency_agent_"))
        .collect()
}

#[test]
fn dashboard_metrics_of_agents_are_registered() {
    let mut registry = Registry::with_prefix("tautline");
    Metrics::registered("", &mut registry);
    let mut metrics = String::new();
    encode(&mut metrics, &registry).unwrap();
    let (registered, dashboard) = (named(&metrics), named(DASHBOARD));
    assert!(dashboard.len() > 10, "{dashboard:?}");
    for metric in dashboard {
        assert!(
            registered.contains(metric),
            "{metric} is not in:\n{metrics}"
        );
    }
}
