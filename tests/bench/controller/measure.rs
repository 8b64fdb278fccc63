//! Waits until the controller is at rest, and measures its cost from then on.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use kube::Client;
use tautline_bench::cluster::AtOnce;
use tautline_tests::{servers::Server, workloads};

use crate::{
    Shape,
    metrics::Page,
    setup::{NAMESPACE, OFFER},
};

/// The figures of the window. A metric that the controller does not have is an error of its
/// own; the other figures are still valid.
pub struct Figures {
    pub seconds: f64,
    /// Cores' worth of processor time.
    pub cpu: f64,
    /// The most memory held at any second.
    pub resident: u64,
    pub evaluations: Result<f64>,
    /// The number of requests to the provider, by its own count.
    pub asked: u64,
    pub lag: Result<Lag>,
    pub status_writes: Result<f64>,
    /// Requests that the API server answered, by verb and resource.
    pub requests: BTreeMap<String, u64>,
}

/// Seconds that evaluations came late; bounds of buckets but for the mean.
pub struct Lag {
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// The number of bindings in the offer's status, and of those that comply.
pub async fn bindings(client: &Client) -> (i64, i64) {
    let status = workloads::offer_status(client, NAMESPACE, OFFER).await;
    (status.binding_count, status.compliant_binding_count)
}

/// Waits until every binding exists and is evaluated; above the maximum, until the offer's
/// condition names the number.
pub async fn settled(
    client: &Client,
    server: &mut Server,
    shape: &Shape,
    patience: Duration,
) -> Result<()> {
    let product = shape.product();
    eprintln!(
        "waiting for {} ...",
        if shape.capped() {
            format!("a condition that names {product} bindings")
        } else {
            format!("{product} evaluated bindings")
        }
    );
    let start = Instant::now();
    let mut last_report = Instant::now();
    loop {
        let status = workloads::offer_status(client, NAMESPACE, OFFER).await;
        let counts = (status.binding_count, status.compliant_binding_count);
        let all = i64::try_from(product).unwrap_or(i64::MAX);
        let done = if shape.capped() {
            let says = |message: &str| names(message, product);
            status.conditions.iter().any(|c| says(&c.message))
        } else {
            counts == (all, all)
        };
        if done {
            eprintln!("there after {:.1?}", start.elapsed());
            return Ok(());
        }
        if let Some(code) = server.process.exit_code() {
            bail!(
                "the controller ended with {code}\n{}",
                server.process.tail()
            );
        }
        if start.elapsed() > patience {
            bail!(
                "not within {patience:?}: {} bindings, {} compliant\n{}",
                counts.0,
                counts.1,
                server.process.tail()
            );
        }
        if last_report.elapsed() > Duration::from_secs(5) {
            eprintln!("  {} bindings, {} compliant", counts.0, counts.1);
            last_report = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// True if the text has this number, with any grouping of digits.
fn names(message: &str, number: usize) -> bool {
    let plain: String = message
        .chars()
        .filter(|c| !matches!(c, ',' | '_' | '\''))
        .collect();
    plain
        .split(|c: char| !c.is_ascii_digit())
        .any(|digits| digits == number.to_string())
}

/// All counters at one time.
struct Counts {
    at: Instant,
    cpu: f64,
    page: Page,
    asked: u64,
    requests: BTreeMap<String, f64>,
}

impl Counts {
    async fn now(client: &Client, server: &Server, provider: &AtOnce) -> Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let of_api = client.request_text(request).await;
        let of_api = Page::parse(&of_api.context("metrics of the API server")?);
        let (status, text) = server.admin("/metrics").await?;
        if status != 200 {
            bail!("the controller's /metrics answers {status}");
        }
        Ok(Self {
            at: Instant::now(),
            cpu: server.process.cpu_seconds(),
            page: Page::parse(&text),
            asked: provider.evaluated(),
            requests: of_api.by("apiserver_request_total", request_key),
        })
    }
}

/// `PATCH constraintpolicybindings/status`; `None` for requests without a resource, such as
/// those for the metrics.
fn request_key(labels: &BTreeMap<String, String>) -> Option<String> {
    let of = |name: &str| labels.get(name).map_or("", String::as_str);
    let (resource, sub) = (of("resource"), of("subresource"));
    let slash = if sub.is_empty() { "" } else { "/" };
    (!resource.is_empty()).then(|| format!("{} {resource}{slash}{sub}", of("verb")))
}

pub async fn window(
    client: &Client,
    server: &mut Server,
    provider: &AtOnce,
    window: Duration,
) -> Result<Figures> {
    let before = Counts::now(client, server, provider).await?;
    let mut resident = 0;
    while before.at.elapsed() < window {
        resident = resident.max(server.process.resident_bytes());
        let left = window.saturating_sub(before.at.elapsed());
        tokio::time::sleep(left.min(Duration::from_secs(1))).await;
    }
    if let Some(code) = server.process.exit_code() {
        bail!(
            "the controller ended with {code}\n{}",
            server.process.tail()
        );
    }
    let after = Counts::now(client, server, provider).await?;
    let seconds = (after.at - before.at).as_secs_f64();
    let since = |name: &str| -> Result<f64> {
        Ok(after.page.total(name)? - before.page.total(name).unwrap_or(0.0))
    };
    let lag = after
        .page
        .observed_since(&before.page, "tautline_controller_lag_seconds");
    let requests = after.requests.iter().map(|(what, count)| {
        let count = count - before.requests.get(what).unwrap_or(&0.0);
        (what.clone(), count as u64)
    });
    Ok(Figures {
        seconds,
        cpu: (after.cpu - before.cpu) / seconds,
        resident,
        evaluations: since("tautline_controller_evaluations_total"),
        asked: after.asked - before.asked,
        lag: lag.map(|lag| Lag {
            mean: lag.mean(),
            p50: lag.quantile(0.5),
            p99: lag.quantile(0.99),
        }),
        status_writes: Ok(status_writes(&after.page) - status_writes(&before.page)),
        requests: requests.filter(|(_, count)| *count > 0).collect(),
    })
}

/// The number of status writes of bindings and offers.
fn status_writes(page: &Page) -> f64 {
    let writes = page.by("tautline_controller_writes_total", |labels| {
        labels
            .get("what")
            .filter(|w| w.ends_with("status"))
            .cloned()
    });
    writes.values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_however_it_is_written() {
        assert!(names(
            "calls for 1000000 bindings, at most 10000 are made",
            1_000_000
        ));
        assert!(names("1,000,000 bindings", 1_000_000));
        assert!(!names("10000000 bindings", 1_000_000));
    }
}
