//! Asks the extenders of worker clusters, through their API servers.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Error, Result, anyhow};
use futures::future::join_all;
use http_body_util::{BodyExt, Limited};
use hyper::{Request, header::CONTENT_TYPE};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, client::Body, core::DynamicObject};
use parking_lot::Mutex;
use serde_json::Value;
use tautline_runtime::{
    api_call::{ApiCallError, within},
    kubeconfig,
};
use tautline_scheduler_extender::WhatIf;

use super::{
    answers::{Answer, Answers, answer},
    kueue::{Candidate, clusters_of_config, config_of_check, is_true, resource, secret_of_cluster},
};

/// The deadline of all questions to a cluster about a workload, above the extender's own for one, and
/// of reading a Secret.
const DEADLINE: Duration = Duration::from_secs(10);
/// The time for which a cluster that does not answer is not asked again, 30 s, so that other workloads
/// do not wait for it.
const REST: Duration = Duration::from_secs(30);
/// The maximum size of an answer: of 5,000 nodes with ten rules it is about 10 MB.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// The code of a failure, for users, and the error, for the log.
type Failure = (&'static str, Error);

/// The connections to worker clusters, by the clusters' names.
pub(super) struct Workers {
    client: Client,
    secrets: Api<Secret>,
    path: String,
    known: Mutex<HashMap<String, Worker>>,
    /// The codes of the last answers, empty for an answer with costs.
    codes: Mutex<HashMap<String, &'static str>>,
}

#[derive(Clone)]
struct Worker {
    /// The UID and version of the Secret that the client is made of.
    version: (Option<String>, Option<String>),
    client: Client,
    /// The time until which the cluster is not asked, and the cause.
    rests: Option<(Instant, &'static str)>,
}

impl Workers {
    /// Makes the connections by Secrets of `secret_namespace`. Tautline is in the namespace `tautline`
    /// of each worker cluster.
    pub(super) fn new(client: Client, secret_namespace: &str, tautline: &str) -> Self {
        let service = "services/http:tautline-extender:admin";
        Self {
            secrets: Api::namespaced(client.clone(), secret_namespace),
            client,
            path: format!("/api/v1/namespaces/{tautline}/{service}/proxy/what-if"),
            known: Mutex::default(),
            codes: Mutex::default(),
        }
    }

    /// Returns the answers of all clusters that a workload may go to; `None` if no admission check of
    /// MultiKueue names any.
    pub(super) async fn ask_all(
        &self,
        candidate: &Candidate,
    ) -> Result<Option<Answers>, ApiCallError> {
        let mut clusters = Vec::new();
        for name in &candidate.checks {
            let check = self.get("AdmissionCheck", name).await?;
            if let Some(config) = check.as_ref().and_then(config_of_check) {
                let config = self.get("MultiKueueConfig", config).await?;
                clusters = config.as_ref().map(clusters_of_config).unwrap_or_default();
            }
        }
        if clusters.is_empty() {
            return Ok(None);
        }
        let asked = clusters.into_iter().map(async |name| {
            let answer = self.ask(&name, &candidate.questions).await;
            (name, answer)
        });
        Ok(Some(join_all(asked).await.into_iter().collect()))
    }

    async fn get(&self, kind: &str, name: &str) -> Result<Option<DynamicObject>, ApiCallError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(kind));
        within(DEADLINE, api.get_opt(name)).await
    }

    /// Returns a cluster's answer to the questions about all pod sets of a workload.
    async fn ask(&self, name: &str, questions: &[Value]) -> Answer {
        let asked = self.try_ask(name, questions).await;
        let code = asked.as_ref().err().map_or("", |(code, _)| *code);
        let last = self.codes.lock().insert(name.to_owned(), code);
        asked.unwrap_or_else(|(code, error)| {
            if last != Some(code) {
                tracing::warn!(
                    cluster = name,
                    code,
                    error = format!("{error:#}"),
                    "no answer"
                );
            }
            if matches!(code, "Timeout" | "Unreachable")
                && let Some(worker) = self.known.lock().get_mut(name)
            {
                worker.rests = Some((Instant::now() + REST, code));
            }
            Answer::Unknown(code)
        })
    }

    async fn try_ask(&self, name: &str, questions: &[Value]) -> Result<Answer, Failure> {
        let found = coded("NoCluster", self.get("MultiKueueCluster", name).await)?;
        let cluster = coded(
            "NoCluster",
            found.context("there is no such MultiKueueCluster"),
        )?;
        if !is_true(&cluster, "Active") {
            return Err(("NotActive", anyhow!("Kueue is not connected to it")));
        }
        let worker = self.worker(name, secret_of_cluster(&cluster)).await?;
        if let Some((until, code)) = worker.rests
            && Instant::now() < until
        {
            return Ok(Answer::Unknown(code));
        }
        let all = async {
            let mut sets = Vec::new();
            for question in questions {
                sets.push(self.post(&worker.client, question).await?);
            }
            Ok(answer(sets))
        };
        coded("Timeout", tokio::time::timeout(DEADLINE, all).await)?
    }

    /// Returns the connection by the kubeconfig in a Secret, a new one if the Secret has changed.
    async fn worker(&self, name: &str, secret: Option<&str>) -> Result<Worker, Failure> {
        let code = "NoKubeconfig";
        let secret = coded(code, secret.context("its kubeconfig is in no Secret"))?;
        let found = coded(code, within(DEADLINE, self.secrets.get(secret)).await)?;
        let version = (found.metadata.uid, found.metadata.resource_version);
        if let Some(known) = self.known.lock().get(name)
            && known.version == version
        {
            return Ok(known.clone());
        }
        let data = found.data.unwrap_or_default();
        let text = coded(
            code,
            data.get("kubeconfig")
                .context("the Secret has no key kubeconfig"),
        )?;
        let worker = Worker {
            version,
            client: coded("BadKubeconfig", kubeconfig::client(&text.0, DEADLINE).await)?,
            rests: None,
        };
        self.known.lock().insert(name.to_owned(), worker.clone());
        Ok(worker)
    }

    async fn post(&self, client: &Client, question: &Value) -> Result<WhatIf, Failure> {
        let request = Request::post(&self.path).header(CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(question.to_string().into_bytes()));
        let sent = client.send(coded("BadAnswer", request)?).await;
        let (head, body) = coded("Unreachable", sent)?.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let body = coded("BadAnswer", body.map_err(Error::from_boxed))?.to_bytes();
        if let Some(code) = refusal(head.status.as_u16()) {
            let text = String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned();
            return Err((code, anyhow!("{}: {text}", head.status)));
        }
        coded("BadAnswer", serde_json::from_slice(&body))
    }
}

/// Gives the error of a result its code.
fn coded<T, E: Into<Error>>(code: &'static str, result: Result<T, E>) -> Result<T, Failure> {
    result.map_err(|error| (code, error.into()))
}

/// Returns the code of an answer without costs, of the API server or the extender.
fn refusal(status: u16) -> Option<&'static str> {
    match status {
        200 => None,
        401 => Some("Unauthorized"),
        403 => Some("Forbidden"),
        404 => Some("NoTautline"),
        429 | 502..=504 => Some("NotReady"),
        _ => Some("BadAnswer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_codes() {
        let codes = [401, 403, 404, 503, 413].map(|status| refusal(status).unwrap());
        let expected = [
            "Unauthorized",
            "Forbidden",
            "NoTautline",
            "NotReady",
            "BadAnswer",
        ];
        assert_eq!(codes, expected);
        assert_eq!(refusal(200), None);
    }
}
