//! A collector of OpenTelemetry on loopback, which keeps the spans that it gets.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::span::SpanKind,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

#[derive(Clone, Debug)]
pub struct Span {
    /// `service.name`.
    pub service: String,
    pub name: String,
    pub kind: SpanKind,
    pub trace: String,
    pub id: String,
    /// Empty without a parent.
    pub parent: String,
    pub failure: Option<String>,
    pub attributes: BTreeMap<String, String>,
}

#[derive(Clone, Default)]
pub struct Collector(Arc<Mutex<Vec<Span>>>);

impl Collector {
    /// Also returns its URL.
    pub async fn start() -> (Self, String) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let service = TraceServiceServer::new(collector.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        (collector, url)
    }

    pub fn spans(&self) -> Vec<Span> {
        self.0.lock().unwrap().clone()
    }

    /// The spans, once there are so many.
    pub async fn wait_for(&self, count: usize) -> Vec<Span> {
        let arrived = async {
            while self.spans().len() < count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let arrived = tokio::time::timeout(Duration::from_secs(60), arrived).await;
        let spans = self.spans();
        assert!(arrived.is_ok(), "not {count} spans: {spans:#?}");
        spans
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for resource_spans in request.into_inner().resource_spans {
            let resource = resource_spans.resource.unwrap_or_default();
            let service = texts(resource.attributes).remove("service.name");
            let service = service.unwrap_or_default();
            for span in resource_spans.scope_spans.into_iter().flat_map(|s| s.spans) {
                let status = span.status.clone().filter(|s| s.code == 2);
                self.0.lock().unwrap().push(Span {
                    service: service.clone(),
                    kind: span.kind(),
                    name: span.name,
                    trace: hex(&span.trace_id),
                    id: hex(&span.span_id),
                    parent: hex(&span.parent_span_id),
                    failure: status.map(|s| s.message),
                    attributes: texts(span.attributes),
                });
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let pair = |kv: KeyValue| (kv.key, kv.value.and_then(|v| v.value).map(text));
    let pairs = attributes.into_iter().map(pair);
    pairs.map(|(k, v)| (k, v.unwrap_or_default())).collect()
}

fn text(value: Value) -> String {
    match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::ArrayValue(array) => {
            let items = array.values.into_iter().filter_map(|v| v.value);
            items.map(text).collect::<Vec<_>>().join("|")
        }
        other => format!("{other:?}"),
    }
}
