//! Reads the admin ports of Tautline's processes, and merges the answers of replicas.

use std::{cmp::Reverse, collections::HashSet, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use hyper::body::Bytes;
use serde::{Deserialize, de::DeserializeOwned};
use tautline_agent_link::SilentAgents;
use tautline_gpu_slice::report::Uses;
use tautline_scheduler_extender::{
    explain::{Record, Summary},
    status::Status,
};
use tokio::time::timeout;

use crate::{
    draw::{clean, cleaned_texts, error_line},
    links,
    source::{AdminAnswer, Component, Source},
};

/// The maximum time for which a page waits for the answers of a component.
const DEADLINE: Duration = Duration::from_secs(3);
const MAX_TEXT_CHARS: usize = 2000;
/// The limit for a text in an answer; names of objects are shorter.
const MAX_VALUE_CHARS: usize = 600;
const MAX_ROUNDS: usize = 10;

/// The number of nodes with agents up to which the use of all cards is read. With more, only the
/// use of the shown nodes is read.
pub(crate) const MAX_NODES_WITH_USE: usize = 100;

/// Returns the answers of a component's replicas to a GET of `path`, or an error after the deadline
/// of a page.
pub(crate) async fn admin(
    source: &dyn Source,
    component: Component,
    path: &str,
) -> Result<Vec<AdminAnswer>> {
    let answers = timeout(DEADLINE, source.admin(component, path)).await;
    answers.with_context(|| format!("no replica answered within {DEADLINE:?}"))?
}

/// The planning rounds of one pod.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// The records of the rounds, the newest first.
    pub records: Vec<Record>,
    /// The reason why a replica knows no round of the pod.
    pub unknown: Option<String>,
}

/// Returns the rounds of a pod. Only the round that began at `at`, in milliseconds since 1970, or
/// else the newest, needs to include its nodes.
pub(crate) async fn rounds(
    source: &dyn Source,
    namespace: &str,
    pod: &str,
    at: Option<u64>,
) -> Result<Rounds> {
    let path = links::path(&["explain", namespace, pod]);
    let path = format!("{path}?at={}", at.unwrap_or(0));
    merge_rounds(admin(source, Component::Extender, &path).await?)
}

fn merge_rounds(answers: Vec<AdminAnswer>) -> Result<Rounds> {
    let mut rounds = Rounds::default();
    for answer in answers {
        match answer.status {
            404 => _ = rounds.unknown.get_or_insert(text(&answer.body)),
            _ => rounds.records.extend(parse::<Vec<Record>>(&answer)?),
        }
    }
    rounds.records.sort_by_key(|r| Reverse(r.at_unix_millis));
    rounds.records.truncate(MAX_ROUNDS);
    Ok(rounds)
}

/// Returns the last round of each pod, the newest first.
pub(crate) async fn summaries(source: &dyn Source) -> Result<Vec<Summary>> {
    merge_summaries(&admin(source, Component::Extender, "/explain").await?)
}

fn merge_summaries(answers: &[AdminAnswer]) -> Result<Vec<Summary>> {
    let lists = parse_all::<Vec<Summary>>(answers)?;
    let mut all: Vec<Summary> = lists.into_iter().flatten().collect();
    all.sort_by_key(|s| Reverse(s.at_unix_millis));
    let mut seen = HashSet::new();
    all.retain(|s| seen.insert((s.namespace.clone(), s.pod.clone())));
    Ok(all)
}

/// Returns the status of each replica.
pub(crate) async fn statuses(source: &dyn Source) -> Result<Vec<Status>> {
    parse_all(&admin(source, Component::Extender, "/status").await?)
}

/// A decision on a violation, as the page `/decisions` of the controller has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Decision {
    pub time: String,
    /// The `namespace/name` of the binding.
    pub binding: String,
    pub action: String,
    pub outcome: String,
    pub text: String,
}

/// Returns the decisions of all replicas, the newest of each replica first. Only a leader makes
/// decisions.
pub(crate) async fn decisions(source: &dyn Source) -> Result<Vec<Decision>> {
    let lists =
        parse_all::<Vec<Decision>>(&admin(source, Component::Controller, "/decisions").await?)?;
    Ok(lists.into_iter().flatten().collect())
}

/// Returns the silent agents of a provider, by the replica that hears the fewest agents, as each
/// agent reports to all replicas. `None`: no replica has the list.
pub(crate) async fn silent_agents(
    source: &dyn Source,
    of: Component,
    path: &str,
) -> Option<SilentAgents> {
    let lists = parse_all::<SilentAgents>(&admin(source, of, path).await.ok()?).ok()?;
    lists.into_iter().max_by_key(|list| list.total)
}

/// Returns the last reports of `nodes`, or of all nodes for `None`. If they cannot be read, they are
/// empty, and the second value is the error.
pub(crate) async fn gpu_uses(
    source: &dyn Source,
    nodes: Option<&[&str]>,
) -> (Uses, Option<String>) {
    let path = match nodes {
        None => "/gpu/use".to_owned(),
        Some(nodes) => {
            let names: Vec<String> = nodes.iter().map(|name| links::escaped(name)).collect();
            format!("/gpu/use?nodes={}", names.join(","))
        }
    };
    let uses = admin(source, Component::Gpu, &path).await.and_then(|all| {
        let answers = all.iter().map(|a| (&*a.from, a.status, &*a.body));
        Uses::merge(answers).context("how much of the cards is used is not known")
    });
    match uses {
        Ok(uses) => (uses, None),
        Err(error) => (Uses::default(), Some(error_line(&error))),
    }
}

/// The reason why there is no report of the latency provider.
#[derive(Debug)]
pub enum Missing {
    /// A named node or zone does not exist.
    Unknown(String),
    /// The provider did not answer, or has another version.
    Failed(anyhow::Error),
}

impl Missing {
    /// Returns the reason as text for the user.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Unknown(text) => text.clone(),
            Self::Failed(error) => error_line(error),
        }
    }
}

/// Returns the latency provider's report of a path.
pub(crate) async fn latency_report<T: DeserializeOwned>(
    source: &dyn Source,
    path: &str,
) -> Result<T, Missing> {
    let answers = admin(source, Component::Latency, path).await;
    latency_answer(answers.map_err(Missing::Failed)?)
}

/// Returns the report in the best of the answers of replicas of the latency provider.
///
/// # Errors
/// No replica has the report.
pub fn latency_answer<T: DeserializeOwned>(answers: Vec<AdminAnswer>) -> Result<T, Missing> {
    let (from, body) = best(answers)?;
    parsed(&body)
        .with_context(|| {
            format!("{from} returned no report; is it a latency provider of this version?")
        })
        .map_err(Missing::Failed)
}

/// Returns the largest successful answer: each replica answers for all agents, but one that has
/// just started may know less.
fn best(answers: Vec<AdminAnswer>) -> Result<(String, Bytes), Missing> {
    let best = answers
        .into_iter()
        .max_by_key(|a| (a.status == 200, a.body.len()));
    let Some(AdminAnswer { from, status, body }) = best else {
        return Err(Missing::Failed(anyhow!("no latency provider answered")));
    };
    let text = text(&body);
    match status {
        200 => Ok((from, body)),
        404 if text.starts_with("there is no ") => Err(Missing::Unknown(text)),
        404 => Err(Missing::Failed(anyhow!(
            "{from} does not exist; it is no latency provider of this version"
        ))),
        other => Err(Missing::Failed(anyhow!("{from} answered {other}: {text}"))),
    }
}

/// Returns the answers that can be parsed: during an upgrade some replicas may lack the page. Fails
/// if no answer can be parsed.
pub(crate) fn parse_all<T: DeserializeOwned>(answers: &[AdminAnswer]) -> Result<Vec<T>> {
    let (parsed, failed): (Vec<_>, Vec<_>) = answers.iter().map(parse).partition(Result::is_ok);
    match failed.into_iter().next() {
        Some(Err(error)) if parsed.is_empty() => Err(error),
        _ => parsed.into_iter().collect(),
    }
}

fn parse<T: DeserializeOwned>(answer: &AdminAnswer) -> Result<T> {
    if answer.status != 200 {
        bail!(
            "{} answered {}: {}",
            answer.from,
            answer.status,
            text(&answer.body)
        );
    }
    let parsed = parsed(&answer.body);
    parsed.with_context(|| format!("{}: an answer of another version of Tautline", answer.from))
}

/// Parses JSON. Each of its texts becomes one line without control characters, and is cut if it is
/// long.
pub(crate) fn parsed<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    let json = cleaned_texts(serde_json::from_slice(body)?, MAX_VALUE_CHARS);
    serde_json::from_value(json)
}

/// Cleans a name or a value, as [`parsed`] does.
pub(crate) fn clean_value(text: &str) -> String {
    clean(text, MAX_VALUE_CHARS)
}

fn text(body: &[u8]) -> String {
    clean(String::from_utf8_lossy(body).trim(), MAX_TEXT_CHARS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: u16, body: impl ToString) -> AdminAnswer {
        AdminAnswer {
            from: "pod e-1".into(),
            status,
            body: body.to_string().into_bytes().into(),
        }
    }

    fn summary(pod: &str, at: u64) -> serde_json::Value {
        json!({"namespace": "shop", "pod": pod, "uid": "u", "atUnixMillis": at, "tookMicros": 1,
               "nodes": 3, "usable": 1, "offered": 1, "offeredNodes": ["n1"]})
    }

    #[test]
    fn summaries_have_each_pod_once() {
        let answers = [
            answer(200, json!([summary("a", 5), summary("b", 1)])),
            answer(404, "not found"),
            answer(200, json!([summary("b", 9)])),
        ];
        let merged = merge_summaries(&answers).unwrap();
        let got: Vec<_> = merged.iter().map(|s| (&*s.pod, s.at_unix_millis)).collect();
        assert_eq!(got, [("b", 9), ("a", 5)]);
        let error = merge_summaries(&[answer(404, "not found")]).unwrap_err();
        assert_eq!(error.to_string(), "pod e-1 answered 404: not found");
        let error = merge_summaries(&[answer(200, "{}")]).unwrap_err();
        assert!(error.to_string().contains("another version"), "{error}");
    }

    #[test]
    fn rounds_of_one_replica_hide_the_others_404() {
        let record = json!({"namespace": "shop", "pod": "a", "uid": "u", "atUnixMillis": 7,
            "tookMicros": 1, "usable": 0, "rules": [], "nodes": []});
        let rounds = merge_rounds(vec![
            answer(404, "no round of pod\u{1b}[2J is known\n"),
            answer(200, json!([record])),
        ])
        .unwrap();
        assert_eq!(rounds.records.len(), 1);
        assert_eq!(
            rounds.unknown.unwrap(),
            "no round of pod\u{fffd}[2J is known"
        );
    }

    #[test]
    fn the_replica_that_knows_most_counts() {
        let all = vec![
            answer(200, "{}"),
            answer(503, "busy busy"),
            answer(200, "{a: 1}"),
        ];
        assert_eq!(best(all).unwrap().1, "{a: 1}");
        let error = |answers| best(answers).unwrap_err();
        assert!(matches!(
            error(vec![answer(404, "there is no node x\n")]),
            Missing::Unknown(_)
        ));
        let old = error(vec![answer(404, "not found")]).text();
        assert!(old.contains("no latency provider of this version"), "{old}");
        assert_eq!(
            error(vec![answer(400, "by: \u{1b}[2J")]).text(),
            "pod e-1 answered 400: by: \u{fffd}[2J"
        );
        assert!(matches!(error(Vec::new()), Missing::Failed(_)));
    }
}
