//! Answers `/status`, `/history`, `/explain` and `/explain/NAMESPACE/POD` on the extender's admin
//! port with the extender's state and recorded planning rounds as JSON.

use hyper::Uri;
use serde::Serialize;
use tautline_api::convert;
use tautline_core::{
    constraints::{self, PodIdentity},
    dns,
};
use tautline_runtime::{history::HISTORY_PATH, http};

use crate::{
    explain::pod::{self, Governed, Read},
    state::State,
};

/// Handles the pages of the extender; `None` for another path.
pub(crate) async fn admin_page(state: &State, uri: &Uri) -> Option<http::HttpResponse> {
    match uri.path() {
        "/status" => Some(json(&state.status())),
        HISTORY_PATH => Some(json(&[state.waiting_pods.series()])),
        "/explain" => {
            state.recorded().await;
            Some(json(&state.history.summaries()))
        }
        path => {
            let (namespace, name) = path.strip_prefix("/explain/")?.split_once('/')?;
            Some(explain(state, namespace, name, uri.query()).await)
        }
    }
}

/// Answers `/explain/NAMESPACE/POD`. With `at=MILLIS` in the query only the round that began then,
/// or the newest, has its nodes.
async fn explain(
    state: &State,
    namespace: &str,
    name: &str,
    query: Option<&str>,
) -> http::HttpResponse {
    let nodes_at = match query {
        None | Some("") => None,
        Some(query) => match query.strip_prefix("at=").map(str::parse) {
            Some(Ok(at)) => Some(at),
            _ => return http::text(400, "write /explain/NAMESPACE/POD?at=MILLISECONDS\n"),
        },
    };
    // The names become parts of a URL.
    if !dns::is_label(namespace) || !dns::is_subdomain(name) {
        return http::text(400, "write /explain/NAMESPACE/POD\n");
    }
    state.recorded().await;
    let read = match &state.client {
        Some(client) => Some(state.history.reader.read(client, namespace, name).await),
        None => None,
    };
    let mut rounds = state.history.rounds(namespace, name, nodes_at);
    if rounds.is_empty() {
        let governed = governed(state, namespace, read.as_ref());
        let text = pod::no_round(namespace, name, read.as_ref(), governed);
        return http::text(404, text);
    }
    for round in &mut rounds {
        round.pod_now = read.as_ref().map(|read| pod::now(read, &round.uid));
    }
    json(&rounds)
}

fn json<T: Serialize>(page: &T) -> http::HttpResponse {
    match serde_json::to_vec(page) {
        Ok(body) => http::respond(200, "application/json", body),
        Err(error) => http::text(500, format!("{error}\n")),
    }
}

fn governed(state: &State, namespace: &str, read: Option<&Read>) -> Governed {
    if state.is_exempt(namespace) {
        return Governed::ExemptNamespace;
    }
    let Some(Ok(Some(pod))) = read else {
        return Governed::Yes;
    };
    let pod = PodIdentity {
        namespace: namespace.to_owned(),
        labels: convert::labels(pod.metadata.labels.as_ref()),
        ..PodIdentity::default()
    };
    if constraints::is_governed(&state.store.snapshot(), &pod) {
        Governed::Yes
    } else {
        Governed::NoOffer
    }
}
