//! The state of a port: its limits, its open connections and handshakes, and its metrics.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    connections::{CloseReason, Connections},
    limits::{self, Limits},
    port_metrics::PortMetrics,
};

/// The state of a port. Clones share it.
#[derive(Clone, Debug)]
pub struct Port(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub limits: Limits,
    started: Instant,
    pub connections: Mutex<Connections<oneshot::Sender<()>>>,
    pub handshakes: Mutex<Connections<oneshot::Sender<()>>>,
    most_bytes: i64,
    pub metrics: PortMetrics,
}

impl Port {
    /// A port whose largest request has `largest` bytes.
    pub fn new(limits: Limits, largest: usize, metrics: PortMetrics) -> Self {
        let of_source = |all: usize| (all / 4 * 3).max(1);
        let most = limits::connections_within(limits.connections);
        Self(Arc::new(Inner {
            started: Instant::now(),
            connections: Mutex::new(Connections::new(most, of_source(most))),
            handshakes: Mutex::new(Connections::new(
                limits.handshakes,
                of_source(limits.handshakes),
            )),
            most_bytes: i64::try_from(limits.budget(largest)).unwrap_or(i64::MAX),
            metrics,
            limits,
        }))
    }

    /// The limits of the port.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The metrics of the port.
    pub fn metrics(&self) -> &PortMetrics {
        &self.0.metrics
    }

    pub(crate) fn most_bytes(&self) -> i64 {
        self.0.most_bytes
    }

    pub(crate) fn closed(&self, id: u64) {
        self.0.connections.lock().close(id);
        self.0.metrics.connections.open.dec();
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn is_used(&self) -> bool {
        !(self.0.handshakes.lock().is_empty() && self.0.connections.lock().is_empty())
    }

    pub(crate) fn sweep(&self) {
        let overdue = self
            .0
            .connections
            .lock()
            .overdue(&self.0.limits, self.now());
        for (_, reason) in overdue {
            self.0.metrics.connections.closed(reason);
        }
    }

    pub(crate) fn shed(&self) -> bool {
        let (now, inner) = (self.now(), &self.0);
        let closed = inner.connections.lock().shed(now);
        let closed = closed.or_else(|| inner.handshakes.lock().shed(now));
        if closed.is_some() {
            inner.metrics.connections.closed(CloseReason::MadeRoom);
        }
        closed.is_some()
    }
}
