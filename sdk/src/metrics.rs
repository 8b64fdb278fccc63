use std::{future::Future, time::Instant};

use prometheus_client::metrics::{
    counter::Counter,
    family::Family,
    histogram::{Histogram, exponential_buckets},
};
use tonic::{Code, Response, Status};

tautline_serve::metrics! {
    pub(crate) struct Metrics {
        calls: Family<Call, Counter>
            => "ruleprovider_calls", "Calls answered, by RPC and gRPC code";
        seconds: Family<Rpc, Histogram> = Family::new_with_constructor(call_seconds)
            => "ruleprovider_call_seconds", "Time of calls, by RPC";
    }
    labels Call { rpc: &'static str, code: &'static str }
    labels Rpc { rpc: &'static str }
}

fn call_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 14))
}

impl Metrics {
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
