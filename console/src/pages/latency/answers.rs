//! The reports of the latency provider. A slider asks for the same one again and again.

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

/// Shorter than the time after which a page shows itself again.
const FRESH: Duration = Duration::from_secs(4);
const KEPT: usize = 8;
/// Larger reports are read again.
const MAX_KEPT_BYTES: usize = 4 << 20;
const MAX_TEXT: usize = 500;

/// The last reports, by path.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<VecDeque<(String, Instant, Bytes)>>);

/// Reasons why there is no report.
#[derive(Debug)]
pub(super) enum Missing {
    /// A named node or zone does not exist.
    Unknown(String),
    /// No provider answers, or none of this version.
    Failed(anyhow::Error),
}

impl Missing {
    /// For people.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Unknown(text) => text.clone(),
            Self::Failed(error) => clean(&format!("{error:#}"), MAX_TEXT),
        }
    }
}

impl Answers {
    /// The report of a path, or one of the last four seconds.
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
            .find(|(of, at, _)| of == path && at.elapsed() < FRESH)?;
        Some(body.clone())
    }

    fn keep(&self, path: &str, body: &Bytes) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(of, at, _)| of != path && at.elapsed() < FRESH);
        kept.truncate(KEPT - 1);
        if body.len() <= MAX_KEPT_BYTES {
            kept.push_front((path.to_owned(), Instant::now(), body.clone()));
        }
    }
}

/// Each replica answers for all agents; one that has just started may know less.
fn best(answers: Vec<AdminAnswer>) -> Result<Bytes, Missing> {
    let best = answers
        .into_iter()
        .max_by_key(|a| (a.status == 200, a.body.len()));
    let Some(AdminAnswer { from, status, body }) = best else {
        return Err(Missing::Failed(anyhow!("no latency provider answered")));
    };
    let text = clean(String::from_utf8_lossy(&body).trim(), MAX_TEXT);
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
        assert_eq!(answers.0.lock().unwrap().len(), KEPT);
        assert!(answers.fresh("/19").is_some() && answers.fresh("/1").is_none());
        answers.keep("/20", &Bytes::from(vec![0; MAX_KEPT_BYTES + 1]));
        assert!(answers.fresh("/20").is_none());
    }
}
