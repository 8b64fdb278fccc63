//! Serves the latency reports (pair, matrix, top and silent agents) as JSON pages on the provider's admin port,
//! and makes one report at a time.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tautline_sdk::AdminPage;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    facts::ReportSource, matrix::MatrixReport, pair::PairReport, query::ReportError, top::TopReport,
};

/// The longest time that a request waits for the report before it.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// The pages of all reports, which run one at a time to leave CPU time for the scheduler's
/// requests.
#[derive(Clone, Debug)]
pub struct Pages<F> {
    facts: Arc<F>,
    turn: Arc<Semaphore>,
}

impl<F: ReportSource + Send + Sync + 'static> Pages<F> {
    /// Creates the pages about a provider, a [`Latency`](crate::Latency).
    pub fn new(facts: F) -> Self {
        Self {
            facts: Arc::new(facts),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Returns the page of a path and a query, or `None` if no report has the path.
    pub async fn answer(self, path: String, query: String) -> Option<AdminPage> {
        if !path.starts_with("/latency/") {
            return None;
        }
        let Ok(Ok(turn)) = timeout(QUEUE_TIMEOUT, self.turn.acquire_owned()).await else {
            return Some(AdminPage::text(
                503,
                "other reports are being made; try again",
            ));
        };
        let made = tokio::task::spawn_blocking(move || {
            let page = page(&*self.facts, &path, &query);
            drop(turn);
            page
        });
        let broken = |_| Some(AdminPage::text(500, "the report could not be made"));
        made.await.unwrap_or_else(broken)
    }
}

fn page(facts: &impl ReportSource, path: &str, query: &str) -> Option<AdminPage> {
    let page = match path {
        "/latency/pair" => json(PairReport::from_query(facts, query)),
        "/latency/matrix" => json(MatrixReport::from_query(facts, query)),
        "/latency/silent" => json(Ok(facts.silent_agents())),
        "/latency/top" => json(TopReport::from_query(facts, query)),
        _ => return None,
    };
    Some(page)
}

fn json<T: Serialize>(report: Result<T, ReportError>) -> AdminPage {
    match report {
        Ok(report) => match serde_json::to_string(&report) {
            Ok(body) => AdminPage::json(body),
            Err(error) => AdminPage::text(500, error),
        },
        Err(error) => AdminPage::text(error.status, error),
    }
}
