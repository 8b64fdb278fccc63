use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};

use crate::connections::CloseReason;

crate::metrics! {
    /// The metrics of one port's connections.
    pub struct ConnectionMetrics {
        pub(crate) open: Gauge => "connections", "Open connections";
        closed: Family<Reason, Counter>
            => "connections_closed", "Connections closed by the server, by reason";
    }
    labels Reason { reason: &'static str }
}

crate::metrics! {
    /// The metrics of one port's requests. Clones share them, so each port needs its own.
    pub struct PortMetrics {
        /// The metrics of its connections, which are registered on their own.
        pub connections: ConnectionMetrics;
        rejected: Family<Reason, Counter>
            => "requests_refused", "Requests rejected before they were read, by reason";
        pub(crate) request_bytes: Gauge
            => "request_bytes", "Bytes of requests in progress and of unsent responses";
    }
}

impl ConnectionMetrics {
    pub(crate) fn closed(&self, reason: CloseReason) {
        let reason = reason.as_str();
        self.closed.get_or_create(&Reason { reason }).inc();
    }
}

impl PortMetrics {
    /// Counts a request rejected for `reason`.
    pub fn rejected(&self, reason: &'static str) {
        self.rejected.get_or_create(&Reason { reason }).inc();
    }
}
