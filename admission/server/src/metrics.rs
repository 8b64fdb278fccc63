//! Defines the Prometheus metrics of the admission server: requests, their duration in seconds,
//! reviews, and writes of webhook configurations.

use std::time::Duration;

use prometheus_client::metrics::{
    counter::Counter,
    family::Family,
    histogram::{Histogram, exponential_buckets},
};

use crate::response::Response;

/// The prefix of the metrics of the port and of its certificate.
pub(crate) const PREFIX: &str = "admission_";

tautline_runtime::metrics! {
    pub(crate) struct Metrics {
        requests: Family<Request, Counter> => "admission_requests",
            "Requests by handler and HTTP status; every status but 200 leaves the decision to \
             the failurePolicy";
        seconds: Family<HandlerLabel, Histogram> = Family::new_with_constructor(seconds)
            => "admission_request_seconds", "Duration of requests by handler";
        reviews: Family<Review, Counter> => "admission_reviews",
            "Reviews by handler, outcome (allow, mutate, refuse, bypass, malformed) and reason \
             code";
        writes: Family<Result, Counter> => "admission_webhook_writes",
            "Writes of caBundle, rules and failurePolicy into webhook configurations, by result";
    }
    labels Request { handler: &'static str, status: u16 }
    labels HandlerLabel { handler: &'static str }
    labels Review { handler: &'static str, outcome: &'static str, code: &'static str }
    labels Result { result: &'static str }
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 17))
}

impl Metrics {
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
