use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::response::Response;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    handler: &'static str,
    status: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Review {
    handler: &'static str,
    outcome: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandlerLabel {
    handler: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    requests: Family<Request, Counter>,
    seconds: Family<HandlerLabel, Histogram, fn() -> Histogram>,
    reviews: Family<Review, Counter>,
    writes: Family<Result, Counter>,
}

impl Metrics {
    pub(crate) fn register(r: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 17));
        let m = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            reviews: Family::default(),
            writes: Family::default(),
        };
        r.register(
            "admission_requests",
            "Requests by handler and HTTP status; every status but 200 leaves the decision to the failurePolicy",
            m.requests.clone(),
        );
        r.register(
            "admission_request_seconds",
            "Duration of requests by handler",
            m.seconds.clone(),
        );
        r.register(
            "admission_reviews",
            "Reviews by handler, outcome (allow, mutate, refuse, bypass, malformed) and reason code",
            m.reviews.clone(),
        );
        r.register(
            "admission_webhook_writes",
            "Writes of caBundle, rules and failurePolicy into webhook configurations, by result",
            m.writes.clone(),
        );
        m
    }

    /// Gives each metric with labels a series, for the reference of metrics.
    pub(crate) fn add_examples(&self) {
        _ = self.requests.get_or_create(&Default::default());
        _ = self.seconds.get_or_create(&Default::default());
        _ = self.reviews.get_or_create(&Default::default());
        _ = self.writes.get_or_create(&Default::default());
    }

    pub(crate) fn request(&self, handler: &'static str, status: u16, took: Duration) {
        self.requests
            .get_or_create(&Request { handler, status })
            .inc();
        self.seconds
            .get_or_create(&HandlerLabel { handler })
            .observe(took.as_secs_f64());
    }

    pub(crate) fn review(&self, handler: &'static str, response: &Response) {
        let label = Review {
            handler,
            outcome: response.kind.as_str(),
            code: response.code,
        };
        self.reviews.get_or_create(&label).inc();
    }

    pub(crate) fn webhook_write(&self, result: &'static str) {
        self.writes.get_or_create(&Result { result }).inc();
    }
}
