use std::{collections::HashSet, sync::Arc};

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use tautline_core::Snapshot;
use tautline_scheduler_extender::explain::{PodNow, Record};
use tokio::time::{Duration, timeout};

use super::{
    fitting::{Excluded, excluded, unbound},
    pod_state::PodState,
    render,
    round::{Reason, Round},
    what_if,
};
use crate::{
    admin::{self, Rounds},
    draw::{clean, or_problem},
    events,
    request::{PageInfo, PageRequest, PageResult},
    shell::quote,
};

const DEADLINE: Duration = Duration::from_secs(3);

#[derive(Debug, Serialize)]
pub(super) struct View {
    pub namespace: String,
    pub pod: String,
    pub state: PodState,
    /// The reason why no round is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// True if the round in the address is not known any more, so that the newest is shown.
    pub forgotten: bool,
    /// The errors of servers that did not answer.
    pub problems: Vec<String>,
    /// The rounds of the pod, the newest first.
    pub rounds: Vec<Tab>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<Round>,
    /// The nodes that Kubernetes' own rules admit and exclude; absent if a round is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tab {
    pub at_unix_millis: u64,
    pub usable: usize,
    pub took_micros: u64,
    pub shown: bool,
    /// True if the round was for an earlier pod of the same name.
    pub other_pod: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Kubernetes {
    pub nodes: usize,
    pub admitted: usize,
    pub reasons: Vec<Reason>,
}

pub(in super::super) async fn page(
    request: &PageRequest,
    namespace: &str,
    pod: &str,
) -> PageResult {
    let now = Timestamp::now();
    let view = view(request, namespace, pod).await?;
    let name = format!("{namespace}/{pod}");
    let info = PageInfo {
        title: &clean(&format!("Pod {name}"), 300),
        command: &clean(&format!("explain {}", quote(&name)), 600),
        live: live(request, &view),
    };
    request.respond(&info, &view, |view| render::page(view, request, now))
}

/// Returns the events that refresh the page. There are none while the user moves sliders, as these
/// must not be replaced, and none for a pod with a node, which gets no new round.
fn live(request: &PageRequest, view: &View) -> &'static [&'static str] {
    let mut fields = request.query.keys();
    let is_what_if = fields.any(|name| name.starts_with(what_if::PREFIX));
    let is_over = view.state.node.is_some() && view.round.is_some();
    if is_what_if || is_over {
        &[]
    } else {
        &[events::TICKS]
    }
}

async fn view(request: &PageRequest, namespace: &str, pod: &str) -> PageResult<View> {
    let at = request.number::<u64>("at")?;
    let source = &*request.console.source;
    let read = async {
        let read = timeout(DEADLINE, source.pod(namespace, pod)).await;
        read.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {DEADLINE:?}")))
    };
    let (rounds, read) = tokio::join!(admin::rounds(source, namespace, pod, at), read);
    let snapshot = request.console.store.snapshot();
    let state = PodState::new(&read, &snapshot);
    let mut problems = Vec::new();
    let Rounds { records, unknown } = or_problem(rounds, "", &mut problems);
    let chosen = records.iter().position(|r| Some(r.at_unix_millis) == at);
    let record = records.get(chosen.unwrap_or_default());
    let asked = record.into_iter().flat_map(|r| &r.nodes);
    let asked = asked.map(|n| n.node.clone());
    let known = match read {
        Ok(Some(pod)) => Some(unbound(pod)),
        // The index does not keep the constraints of a pod with a node.
        _ => {
            let pod = snapshot.pod(namespace, pod).filter(|p| p.node.is_none());
            pod.map(|pod| (**pod).clone())
        }
    };
    let has_pod = known.is_some();
    let excluded = excluded(&snapshot, known, asked.collect::<HashSet<_>>()).await?;
    let node = node(&state, record);
    let round = record.map(|r| Round::new(request, r, &excluded, node.as_deref()));
    Ok(View {
        unknown: unknown.filter(|_| records.is_empty() && !says_why(&state)),
        forgotten: at.is_some() && chosen.is_none() && record.is_some(),
        rounds: tabs(&records, record, &state),
        kubernetes: (record.is_none() && has_pod).then(|| kubernetes(&snapshot, &excluded)),
        round: round.transpose()?,
        state,
        problems,
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
    })
}

/// Returns whether the pod's state explains why it has no round: it has scheduling gates, or no
/// offer selects it.
fn says_why(state: &PodState) -> bool {
    state.exists && (!state.scheduling_gates.is_empty() || state.offers.is_empty())
}

/// Returns the pod's node, if the record is of this pod and not of an earlier one.
fn node(state: &PodState, record: Option<&Record>) -> Option<String> {
    let record = record?;
    if state.exists {
        return state.node.clone().filter(|_| state.uid == record.uid);
    }
    match &record.pod_now {
        Some(PodNow::Bound { node }) => Some(node.clone()),
        _ => None,
    }
}

fn tabs(records: &[Record], shown: Option<&Record>, state: &PodState) -> Vec<Tab> {
    let shown = shown.map(|r| r.at_unix_millis);
    let tab = |record: &Record| Tab {
        at_unix_millis: record.at_unix_millis,
        usable: record.usable,
        took_micros: record.took_micros,
        shown: shown == Some(record.at_unix_millis),
        other_pod: state.exists && state.uid != record.uid,
    };
    records.iter().map(tab).collect()
}

fn kubernetes(snapshot: &Arc<Snapshot>, excluded: &[Excluded]) -> Kubernetes {
    let reasons = excluded.iter().filter_map(|e| e.reason.as_deref());
    Kubernetes {
        nodes: snapshot.node_count(),
        admitted: excluded.iter().filter(|e| e.reason.is_none()).count(),
        reasons: Reason::count(reasons.map(|reason| (true, reason))),
    }
}
