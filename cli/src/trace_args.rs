use anyhow::Result;
use tautline_traces::Traces;

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct TraceArgs {
    /// Send spans to this collector of OpenTelemetry by gRPC, such as http://collector:4317
    /// [default: OTEL_EXPORTER_OTLP_ENDPOINT, else none]
    #[arg(long, value_name = "URL")]
    traces_endpoint: Option<String>,
}

impl TraceArgs {
    /// Starts tracing, which is off without a collector.
    pub(crate) fn start(&self, service: &'static str) -> Result<Traces> {
        Ok(Traces::start(service, self.traces_endpoint.as_deref())?)
    }
}
