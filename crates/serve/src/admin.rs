//! The admin port: `/livez`, `/readyz`, `/metrics`, and a process' own pages.

use std::{collections::BTreeMap, future::Future, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use hyper::Request;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::text::{encode_eof, encode_registry},
    registry::Registry,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::http::{self, Body, ConnectionMetrics, HttpResponse, Limits, Port, PortMetrics};

const MAX_CONNECTIONS: usize = 64;
/// The memory for requests and responses in progress.
const MEMORY_BYTES: usize = 64 << 20;
/// The prefix of the names of the port's own metrics.
const PREFIX: &str = "admin_";

/// The conditions that a process waits for before it can serve.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<String, bool>>>);

impl Readiness {
    /// Adds a condition: the process is ready once all are met.
    pub fn expect(&self, name: &str) {
        self.0.lock().entry(name.to_owned()).or_insert(false);
    }

    /// Marks a condition as met.
    pub fn done(&self, name: &str) {
        self.set(name, true);
    }

    /// Sets whether a condition is met, and adds it if it is new.
    pub fn set(&self, name: &str, ready: bool) {
        self.0.lock().insert(name.to_owned(), ready);
    }

    /// The names of the conditions that are not met.
    pub fn missing(&self) -> Vec<String> {
        self.0
            .lock()
            .iter()
            .filter(|(_, done)| !**done)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Completes once all conditions are met.
    pub async fn wait(&self) {
        while !self.missing().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Binds a listener.
///
/// # Errors
/// The address, and why it cannot be bound.
pub async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))
}

/// Serves the admin port until `stop`. `extra` answers the other paths; `None` becomes a 404.
///
/// # Errors
/// It never fails so far.
pub async fn serve<E, F>(
    listener: TcpListener,
    registry: Arc<Registry>,
    readiness: Readiness,
    extra: E,
    stop: CancellationToken,
) -> Result<()>
where
    E: Fn(Request<Body>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Option<HttpResponse>> + Send,
{
    let limits = Limits {
        connections: MAX_CONNECTIONS,
        response: Duration::from_secs(30),
        request_bytes: Some(MEMORY_BYTES),
        ..Limits::default()
    };
    let (port_metrics, mut own) = (PortMetrics::default(), Registry::with_prefix("tautline"));
    port_metrics.connections.register(PREFIX, &mut own);
    let own = Arc::new(own);
    let handle = move |request: Request<Body>| {
        let (registry, readiness, extra) =
            (Arc::clone(&registry), readiness.clone(), extra.clone());
        let own = Arc::clone(&own);
        async move {
            match request.uri().path() {
                "/livez" | "/healthz" => http::text(200, "ok\n"),
                "/readyz" => match readiness.missing() {
                    missing if missing.is_empty() => http::text(200, "ok\n"),
                    missing => http::text(503, format!("waiting for: {}\n", missing.join(", "))),
                },
                "/metrics" => metrics(&[&registry, &own]),
                _ => match extra(request).await {
                    Some(answer) => answer,
                    None => http::text(404, "not found; try /livez, /readyz or /metrics\n"),
                },
            }
        }
    };
    let port = Port::new(limits, 0, port_metrics);
    http::serve(listener, None, handle, port, stop).await
}

/// Registers the metrics of an admin port, each with one series.
#[doc(hidden)]
pub fn example_metrics(registry: &mut Registry) {
    ConnectionMetrics::example(PREFIX, registry);
}

fn metrics(registries: &[&Registry]) -> HttpResponse {
    let mut body = String::new();
    let written = registries
        .iter()
        .try_for_each(|registry| encode_registry(&mut body, registry))
        .and_then(|()| encode_eof(&mut body));
    match written {
        Ok(()) => http::respond(
            200,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            body,
        ),
        Err(_) => http::text(500, "metrics do not encode\n"),
    }
}
