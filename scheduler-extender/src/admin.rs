use tautline_api::convert;
use tautline_core::constraints::{self, PodIdentity};
use tautline_runtime::http;

use crate::{
    explain::pod::{self, Governed, Read},
    state::State,
};

/// Handles `/explain/NAMESPACE/POD`; `None` for another path.
pub(crate) async fn explain(state: &State, path: &str) -> Option<http::HttpResponse> {
    let (namespace, name) = path.strip_prefix("/explain/")?.split_once('/')?;
    if !pod::is_name(namespace) || !pod::is_name(name) {
        return Some(http::text(400, "write /explain/NAMESPACE/POD\n"));
    }
    let read = match &state.client {
        Some(client) => Some(state.history.reader.read(client, namespace, name).await),
        None => None,
    };
    let mut rounds = state.history.rounds(namespace, name);
    if rounds.is_empty() {
        let governed = governed(state, namespace, read.as_ref());
        let text = pod::no_round(namespace, name, read.as_ref(), governed);
        return Some(http::text(404, text));
    }
    for round in &mut rounds {
        round.pod_now = read.as_ref().map(|read| pod::now(read, &round.uid));
    }
    match serde_json::to_vec(&rounds) {
        Ok(body) => Some(http::respond(200, "application/json", body)),
        Err(error) => Some(http::text(500, format!("{error}\n"))),
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
    match constraints::is_governed(&state.store.snapshot(), &pod) {
        true => Governed::Yes,
        false => Governed::NoOffer,
    }
}
