use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::connections::CloseReason;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    reason: &'static str,
}

/// The metrics of one port. Clones share them; two ports must not.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub(crate) connections: Gauge,
    closed: Family<Label, Counter>,
    rejected: Family<Label, Counter>,
    pub(crate) request_bytes: Gauge,
}

impl Metrics {
    /// Registers them with names that start with `prefix`.
    pub fn register(&self, prefix: &str, registry: &mut Registry) {
        self.register_connections(prefix, registry);
        registry.register(
            format!("{prefix}requests_refused"),
            "Requests rejected before they were read, by reason",
            self.rejected.clone(),
        );
        registry.register(
            format!("{prefix}request_bytes"),
            "Bytes of requests in progress and of unsent responses",
            self.request_bytes.clone(),
        );
    }

    /// Registers the metrics of connections only.
    pub fn register_connections(&self, prefix: &str, registry: &mut Registry) {
        registry.register(
            format!("{prefix}connections"),
            "Open connections",
            self.connections.clone(),
        );
        registry.register(
            format!("{prefix}connections_closed"),
            "Connections closed by the server, by reason",
            self.closed.clone(),
        );
    }

    /// Gives each metric with labels a series, for the reference of metrics.
    #[doc(hidden)]
    pub fn add_examples(&self) {
        _ = self.closed.get_or_create(&Default::default());
        _ = self.rejected.get_or_create(&Default::default());
    }

    pub(crate) fn closed(&self, reason: CloseReason) {
        let reason = reason.as_str();
        self.closed.get_or_create(&Label { reason }).inc();
    }

    /// Counts a request rejected for `reason`.
    pub fn rejected(&self, reason: &'static str) {
        self.rejected.get_or_create(&Label { reason }).inc();
    }
}
