//! Sends spans to the collector, with a bounded queue, a thread for batches, and a log of outages.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use opentelemetry::KeyValue;
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::{BatchSpanProcessor, SdkTracerProvider, SpanData, SpanExporter},
};
use parking_lot::Mutex;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::{TraceError, settings::Settings};

/// The shortest time between two warnings about one outage.
const WARN_INTERVAL: Duration = Duration::from_secs(600);

pub(super) fn provider(
    service: &'static str,
    settings: Settings,
    env: impl Fn(&str) -> Option<String>,
) -> Result<SdkTracerProvider, TraceError> {
    let mut exporter = OtlpExporter::builder()
        .with_tonic()
        .with_endpoint(&settings.endpoint);
    if settings.has_tls {
        exporter = exporter.with_tls_config(tls(&settings)?);
    }
    let inner = exporter
        .build()
        .map_err(|e| TraceError(format!("traces to {}: {e}", settings.endpoint)))?;
    let exporter = Reporting {
        inner,
        endpoint: settings.endpoint,
        outage: Mutex::default(),
    };
    // The queue has a bound (OTEL_BSP_MAX_QUEUE_SIZE); a span beyond it is dropped.
    let processor = BatchSpanProcessor::builder(exporter).build();
    Ok(SdkTracerProvider::builder()
        .with_resource(resource(service, env))
        .with_span_processor(processor)
        .build())
}

fn resource(service: &'static str, env: impl Fn(&str) -> Option<String>) -> Resource {
    let defaults = [
        KeyValue::new("service.name", service),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
    ];
    // In a pod, this is the pod's name.
    let instance = env("HOSTNAME").map(|name| KeyValue::new("service.instance.id", name));
    let builder = Resource::builder_empty()
        .with_attributes(defaults.into_iter().chain(instance))
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    match env("OTEL_SERVICE_NAME") {
        Some(name) => builder.with_service_name(name).build(),
        None => builder.build(),
    }
}

fn tls(settings: &Settings) -> Result<ClientTlsConfig, TraceError> {
    let read = |path: &Path| {
        let what = "certificates of OTEL_EXPORTER_OTLP_";
        std::fs::read(path).map_err(|e| {
            TraceError(format!(
                "{what}*: {}: {e}; check the path and its mount",
                path.display()
            ))
        })
    };
    let mut tls = match &settings.ca {
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?)),
        None => ClientTlsConfig::new().with_enabled_roots(),
    };
    if let Some((cert, key)) = &settings.identity {
        tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(tls)
}

/// An exporter that logs an outage of the collector once in a while, not for each batch.
#[derive(Debug)]
struct Reporting<E> {
    inner: E,
    endpoint: String,
    outage: Mutex<Outage>,
}

impl<E: SpanExporter> SpanExporter for Reporting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.inner.export(batch).await;
        let (endpoint, now) = (&self.endpoint, Instant::now());
        match &result {
            Ok(()) => {
                if let Some(lost) = self.outage.lock().end() {
                    tracing::info!(%endpoint, lost, "the collector of traces answers again");
                }
            }
            Err(error) => {
                if let Some(lost) = self.outage.lock().failed(now, spans) {
                    tracing::warn!(%endpoint, lost, %error, "spans do not reach the collector");
                }
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.inner.shutdown()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[derive(Debug, Default)]
struct Outage {
    warned: Option<Instant>,
    lost: usize,
}

impl Outage {
    /// Records a failed batch. Returns the number of spans lost so far if a warning is due.
    fn failed(&mut self, now: Instant, spans: usize) -> Option<usize> {
        self.lost += spans;
        let is_due = |at| now.duration_since(at) >= WARN_INTERVAL;
        if !self.warned.is_none_or(is_due) {
            return None;
        }
        self.warned = Some(now);
        Some(self.lost)
    }

    /// Ends the outage. Returns the number of spans lost, or `None` if there was no outage.
    fn end(&mut self) -> Option<usize> {
        let ended = std::mem::take(self);
        ended.warned.map(|_| ended.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_is_reported_once_in_a_while_and_at_its_end() {
        let (start, mut outage) = (Instant::now(), Outage::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(outage.end(), None);
        assert_eq!(outage.failed(at(0), 5), Some(5));
        assert_eq!(outage.failed(at(5), 5), None);
        assert_eq!(outage.failed(at(599), 5), None);
        assert_eq!(outage.failed(at(600), 1), Some(16));
        assert_eq!(outage.end(), Some(16));
        assert_eq!(outage.end(), None);
        assert_eq!(outage.failed(at(601), 2), Some(2));
    }

    #[test]
    fn resource_names_the_service_unless_the_environment_does() {
        let name = |env: Option<&str>| {
            let env = |n: &str| env.filter(|_| n == "OTEL_SERVICE_NAME").map(str::to_owned);
            let key = opentelemetry::Key::new("service.name");
            resource("tautline-extender", env)
                .get(&key)
                .unwrap()
                .to_string()
        };
        assert_eq!(name(None), "tautline-extender");
        assert_eq!(name(Some("mine")), "mine");
    }
}
