use std::{future::Future, time::Instant};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tonic::{Code, Response, Status};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Call {
    rpc: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Rpc {
    rpc: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    calls: Family<Call, Counter>,
    seconds: Family<Rpc, Histogram, fn() -> Histogram>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 14));
        let metrics = Self {
            calls: Family::default(),
            seconds: Family::new_with_constructor(seconds),
        };
        registry.register(
            "ruleprovider_calls",
            "Calls answered, by RPC and gRPC code",
            metrics.calls.clone(),
        );
        registry.register(
            "ruleprovider_call_seconds",
            "Time of calls, by RPC",
            metrics.seconds.clone(),
        );
        metrics
    }

    /// Gives each metric with labels a series, for the reference of metrics.
    pub(crate) fn add_examples(&self) {
        _ = self.calls.get_or_create(&Default::default());
        _ = self.seconds.get_or_create(&Default::default());
    }

    pub(crate) async fn observed<T: From<A>, A>(
        &self,
        rpc: &'static str,
        answer: impl Future<Output = Result<A, Status>> + Send,
    ) -> Result<Response<T>, Status> {
        let start = Instant::now();
        let result = answer.await;
        let code = match result.as_ref().map_err(Status::code) {
            Ok(_) => "OK",
            Err(Code::InvalidArgument) => "INVALID_ARGUMENT",
            Err(Code::FailedPrecondition) => "FAILED_PRECONDITION",
            Err(Code::NotFound) => "NOT_FOUND",
            Err(Code::Unavailable) => "UNAVAILABLE",
            Err(_) => "INTERNAL",
        };
        self.calls.get_or_create(&Call { rpc, code }).inc();
        self.seconds
            .get_or_create(&Rpc { rpc })
            .observe(start.elapsed().as_secs_f64());
        result.map(|a| Response::new(T::from(a)))
    }
}
