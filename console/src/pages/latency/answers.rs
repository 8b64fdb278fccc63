//! Reads reports of the latency provider, and keeps the last ones for a few seconds: a slider
//! requests the same report repeatedly.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use axum::body::Bytes;
use serde::de::DeserializeOwned;

use crate::{
    draw::clean,
    extender::admin,
    source::{AdminAnswer, Component, Source},
};

/// The maximum age of a kept report, shorter than the interval at which pages refresh.
const MAX_AGE: Duration = Duration::from_secs(4);
/// The maximum number of kept reports.
const MAX_KEPT_REPORTS: usize = 8;
/// The maximum size of a kept report; larger ones are read again.
const MAX_KEPT_BYTES: usize = 4 << 20;
const MAX_TEXT_CHARS: usize = 500;

/// The last reports, each with its path and the time at which it was read.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<VecDeque<(String, Instant, Bytes)>>);

/// The reason why there is no report.
#[derive(Debug)]
pub(super) enum Missing {
    /// A named node or zone does not exist.
    Unknown(String),
    /// The provider did not answer, or has another version.
    Failed(anyhow::Error),
}

impl Missing {
    /// Returns the reason as text for the user.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Unknown(text) => text.clone(),
            Self::Failed(error) => clean(&format!("{error:#}"), MAX_TEXT_CHARS),
        }
    }
}

impl Answers {
    /// Returns the report of a path, which may be up to four seconds old.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        source: &dyn Source,
        path: &str,
    ) -> Result<T, Missing> {
        let body = match self.fresh(path) {
            Some(body) => body,
            None => {
                let answers = admin(source, Component::Latency, path).await;
                let body = best(answers.map_err(Missing::Failed)?)?;
                self.keep(path, &body);
                body
            }
        };
        let report = serde_json::from_slice(&body);
        report
            .context("this is no report of a latency provider of this version")
            .map_err(Missing::Failed)
    }

    fn fresh(&self, path: &str) -> Option<Bytes> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (.., body) = kept
            .iter()
            .find(|(of, at, _)| of == path && at.elapsed() < MAX_AGE)?;
        Some(body.clone())
    }

    fn keep(&self, path: &str, body: &Bytes) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(of, at, _)| of != path && at.elapsed() < MAX_AGE);
        kept.truncate(MAX_KEPT_REPORTS - 1);
        if body.len() <= MAX_KEPT_BYTES {
            kept.push_front((path.to_owned(), Instant::now(), body.clone()));
        }
    }
}

/// Returns the largest successful answer: each replica answers for all agents, but one that has
/// just started may know less.
fn best(answers: Vec<AdminAnswer>) -> Result<Bytes, Missing> {
    let best = answers
        .into_iter()
        .max_by_key(|a| (a.status == 200, a.body.len()));
    let Some(AdminAnswer { from, status, body }) = best else {
        return Err(Missing::Failed(anyhow!("no latency provider answered")));
    };
    let text = clean(String::from_utf8_lossy(&body).trim(), MAX_TEXT_CHARS);
    match status {
        200 => Ok(body),
        404 if text.starts_with("there is no ") => Err(Missing::Unknown(text)),
        404 => Err(Missing::Failed(anyhow!(
            "{from} does not exist; it is no latency provider of this version"
        ))),
        other => Err(Missing::Failed(anyhow!("{from} answered {other}: {text}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> AdminAnswer {
        AdminAnswer {
            from: "pod l-1".to_owned(),
            status,
            body: body.to_owned().into(),
        }
    }

    #[test]
    fn the_replica_that_knows_most_counts() {
        let all = vec![
            answer(200, "{}"),
            answer(503, "busy busy"),
            answer(200, "{a: 1}"),
        ];
        assert_eq!(best(all).unwrap(), "{a: 1}");
        let error = |answers| best(answers).unwrap_err();
        assert!(matches!(
            error(vec![answer(404, "there is no node x\n")]),
            Missing::Unknown(_)
        ));
        let old = error(vec![answer(404, "not found")]).text();
        assert!(old.contains("no latency provider of this version"), "{old}");
        assert_eq!(
            error(vec![answer(400, "by: \u{1b}[2J")]).text(),
            "pod l-1 answered 400: by: \u{fffd}[2J"
        );
        assert!(matches!(error(Vec::new()), Missing::Failed(_)));
    }

    #[test]
    fn reports_are_kept_up_to_a_bound() {
        let answers = Answers::default();
        for i in 0..20 {
            answers.keep(&format!("/{i}"), &Bytes::from_static(b"x"));
        }
        assert_eq!(answers.0.lock().unwrap().len(), MAX_KEPT_REPORTS);
        assert!(answers.fresh("/19").is_some() && answers.fresh("/1").is_none());
        answers.keep("/20", &Bytes::from(vec![0; MAX_KEPT_BYTES + 1]));
        assert!(answers.fresh("/20").is_none());
    }
}
