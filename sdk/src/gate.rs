//! The gate that every call passes: the server's readiness, the catch of panics, and the metrics.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, time::Instant};

use futures::FutureExt;
use prometheus_client::metrics::{
    counter::Counter,
    family::Family,
    histogram::{Histogram, exponential_buckets},
};
use tautline_serve::admin::Readiness;
use tonic::{Code, Status};

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

#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Metrics,
}

impl Gate {
    /// Fails until the server is ready. A restarted container has the same address and gets calls
    /// at once. It must not answer from incomplete lists; callers try another replica.
    pub(crate) fn ready(&self) -> Result<(), Status> {
        let missing = self.readiness.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let what = format!("not ready: waiting for {}", missing.join(", "));
        Err(Status::unavailable(what))
    }

    pub(crate) async fn pass<A, E>(
        &self,
        rpc: &'static str,
        answer: impl Future<Output = Result<A, E>>,
    ) -> Result<A, Status>
    where
        Status: From<E>,
    {
        let start = Instant::now();
        let answered = async {
            self.ready()?;
            caught(rpc, answer).await?.map_err(Status::from)
        };
        let answered = answered.await;
        let code = match answered.as_ref().map_err(Status::code) {
            Ok(_) => "OK",
            Err(Code::InvalidArgument) => "INVALID_ARGUMENT",
            Err(Code::FailedPrecondition) => "FAILED_PRECONDITION",
            Err(Code::NotFound) => "NOT_FOUND",
            Err(Code::Unavailable) => "UNAVAILABLE",
            Err(_) => "INTERNAL",
        };
        let Metrics { calls, seconds } = &self.metrics;
        calls.get_or_create(&Call { rpc, code }).inc();
        let spent = start.elapsed().as_secs_f64();
        seconds.get_or_create(&Rpc { rpc }).observe(spent);
        let answered = answered.map_err(short);
        #[cfg(feature = "traces")]
        if let Err(status) = &answered {
            let why = || format!("{:?}: {}", status.code(), status.message());
            tautline_traces::Span::current().fail(why);
        }
        answered
    }
}

/// Cuts the message of a status: metadata has a bound of 16 KiB, and a longer text breaks the
/// connection.
fn short(status: Status) -> Status {
    const MAX_CHARS: usize = 1000;
    let Some((cut, _)) = status.message().char_indices().nth(MAX_CHARS) else {
        return status;
    };
    Status::new(status.code(), format!("{} ...", &status.message()[..cut]))
}

/// Returns the future's output, or an error with the message of its panic. Without this the call
/// would break off without a reason.
pub(crate) async fn caught<T>(what: &str, answer: impl Future<Output = T>) -> Result<T, Status> {
    let answered = AssertUnwindSafe(answer).catch_unwind().await;
    answered.map_err(|panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref().map(String::as_str));
        let text = text.unwrap_or("without a message");
        Status::internal(format!("{what} panicked: {text}"))
    })
}
