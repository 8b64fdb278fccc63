//! Reads reports of the latency provider.

use anyhow::{Context, anyhow};
use hyper::body::Bytes;
use serde::de::DeserializeOwned;

use crate::{
    admin::{admin, parsed},
    draw::{clean, error_line},
    source::{AdminAnswer, Component, Source},
};

const MAX_TEXT_CHARS: usize = 500;

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
            Self::Failed(error) => error_line(error),
        }
    }
}

/// Returns the report of a path.
pub(super) async fn read<T: DeserializeOwned>(
    source: &dyn Source,
    path: &str,
) -> Result<T, Missing> {
    let answers = admin(source, Component::Latency, path).await;
    let body = best(answers.map_err(Missing::Failed)?)?;
    parsed(&body)
        .context("this is no report of a latency provider of this version")
        .map_err(Missing::Failed)
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
}
