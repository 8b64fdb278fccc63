//! The last rounds of each pod, for those who ask why.

mod pod;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tautline_api::convert;
use tautline_core::{
    constraints::{self, PodIdentity},
    planning::{NodeVerdict, RuleOutcome},
};
use tautline_runtime::http;

pub use self::pod::PodNow;
use self::pod::{Governed, Read, Reader};
use crate::{
    app::State,
    plans::Planned,
    underlay::{Consulted, Offered},
};

/// Rounds kept of one pod.
const ROUNDS: usize = 5;

/// A bounded memory of rounds: the oldest go when it is full.
#[derive(Debug)]
pub struct Explain {
    kept: Mutex<(VecDeque<Arc<Planned>>, usize)>,
    most_bytes: usize,
    reader: Reader,
}

/// Answers `/explain/NAMESPACE/POD`; nothing on another path.
pub(crate) async fn answer(state: &State, path: &str) -> Option<http::HttpResponse> {
    let (namespace, name) = path.strip_prefix("/explain/")?.split_once('/')?;
    if !pod::is_name(namespace) || !pod::is_name(name) {
        return Some(http::text(400, "write /explain/NAMESPACE/POD\n"));
    }
    let read = match &state.client {
        Some(client) => Some(state.explain.reader.read(client, namespace, name).await),
        None => None,
    };
    let mut records = state.explain.of(namespace, name);
    if records.is_empty() {
        let governed = governed(state, namespace, read.as_ref());
        let text = pod::no_round(namespace, name, read.as_ref(), governed);
        return Some(http::text(404, text));
    }
    for record in &mut records {
        record.pod_now = read.as_ref().map(|read| pod::now(read, &record.uid));
    }
    match serde_json::to_vec(&records) {
        Ok(body) => Some(http::respond(200, "application/json", body)),
        Err(error) => Some(http::text(500, format!("{error}\n"))),
    }
}

fn governed(state: &State, namespace: &str, read: Option<&Read>) -> Governed {
    if state.config.exempt_namespaces.contains(namespace) {
        return Governed::ExemptNamespace;
    }
    let Some(Ok(Some(pod))) = read else {
        return Governed::Yes;
    };
    let subject = PodIdentity {
        namespace: namespace.to_owned(),
        labels: convert::labels(pod.metadata.labels.as_ref()),
        ..PodIdentity::default()
    };
    match constraints::is_governed(&state.feed.snapshot(), &subject) {
        true => Governed::Yes,
        false => Governed::NoOffer,
    }
}

impl Explain {
    pub fn new(most_bytes: usize) -> Self {
        Self {
            kept: Mutex::default(),
            most_bytes,
            reader: Reader::default(),
        }
    }

    /// Remembers a round.
    pub(crate) fn push(&self, round: &Arc<Planned>) {
        let mut kept = self.kept.lock();
        let (rounds, bytes) = &mut *kept;
        *bytes += round.weight();
        rounds.push_back(Arc::clone(round));
        while *bytes > self.most_bytes && rounds.len() > 1 {
            if let Some(oldest) = rounds.pop_front() {
                *bytes -= oldest.weight();
            }
        }
    }

    /// The last rounds of a pod, the newest first; empty if none is known.
    pub fn of(&self, namespace: &str, name: &str) -> Vec<Record> {
        let rounds: Vec<Arc<Planned>> = {
            let kept = self.kept.lock();
            let ours =
                |r: &&Arc<Planned>| r.subject.namespace == namespace && r.subject.name == name;
            kept.0
                .iter()
                .rev()
                .filter(ours)
                .take(ROUNDS)
                .cloned()
                .collect()
        };
        rounds.iter().map(|r| record(r)).collect()
    }
}

/// One round of a pod, as `/explain/NAMESPACE/POD` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    /// Milliseconds since 1970.
    pub at_unix_millis: u64,
    pub took_micros: u64,
    /// How many of the nodes are usable.
    pub usable: usize,
    pub rules: Vec<RuleRecord>,
    /// The best first, unusable ones last.
    pub nodes: Vec<NodeRecord>,
    /// Where the rules left no node and there is an underlay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<UnderlayRecord>,
    /// Where the pod is when the explanation is asked for; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_now: Option<PodNow>,
}

/// What the underlay was asked, and what it offered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnderlayRecord {
    /// `namespace/name` of the Service.
    pub service: String,
    /// `Offered`, or the code of why nothing is.
    pub outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How many nodes it was asked about.
    pub asked_nodes: usize,
    pub took_micros: u64,
    /// Those that are taken first.
    pub offers: Vec<UnderlayOffer>,
    /// Refused offers that are not listed.
    #[serde(default)]
    pub left_out: usize,
}

/// One offer of the underlay.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnderlayOffer {
    pub id: String,
    pub node: String,
    pub cost: i64,
    /// Milliseconds since 1970; absent: it names no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_millis: Option<u64>,
    /// Why it is not taken; absent: the node is usable by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// How a rule was answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleRecord {
    pub offer: String,
    pub rule: String,
    pub request: String,
    pub limit: String,
    pub weight: u32,
    /// `namespace/name` of the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// `OK`, or the code of what went wrong.
    pub outcome: String,
    /// Whether the rule counted; one without an answer may be ignored.
    pub counted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub took_micros: u64,
    pub reused: bool,
}

/// What was decided of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    pub node: String,
    pub usable: bool,
    /// 0 to 10.
    pub score: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In the order of the record's rules.
    pub costs: Vec<CostRecord>,
}

/// What a rule's provider said of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CostRecord {
    /// Absent: the provider did not name the node, or did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<i64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

fn underlay_record(asked: &Consulted) -> UnderlayRecord {
    let offer = |o: &Offered| UnderlayOffer {
        id: o.id.clone(),
        node: o.node.clone(),
        cost: o.cost,
        expires_unix_millis: o.expires,
        refused: o.refused.map(str::to_owned),
    };
    UnderlayRecord {
        service: asked.service.to_string(),
        outcome: asked.code.to_owned(),
        error: asked.error.clone(),
        asked_nodes: asked.asked,
        took_micros: micros(asked.took),
        offers: asked.offers.iter().map(offer).collect(),
        left_out: asked.left_out,
    }
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// A round as a record.
pub(crate) fn record(round: &Planned) -> Record {
    let rules = round.rules.iter().map(|r| {
        let (outcome, counted) = match &r.outcome {
            RuleOutcome::Costs(_) => ("OK", true),
            RuleOutcome::Unavailable { code, reject } => (*code, *reject),
        };
        RuleRecord {
            offer: r.offer.to_string(),
            rule: r.rule.name.to_string(),
            request: r.rule.request.clone(),
            limit: r.rule.limit.clone(),
            weight: r.rule.weight,
            provider: r.provider.as_deref().map(str::to_owned),
            outcome: outcome.to_owned(),
            counted,
            error: r.error.clone(),
            took_micros: micros(r.took),
            reused: r.reused,
        }
    });
    let mut order: Vec<usize> = (0..round.plan.verdicts.len()).collect();
    order.sort_by_key(|at| (round.plan.verdicts[*at].rank(), round.nodes.name(*at)));
    let nodes = order.into_iter().map(|at| {
        let verdict = &round.plan.verdicts[at];
        let cost = |r: &tautline_provider_client::RuleRecord| match &r.outcome {
            RuleOutcome::Unavailable { .. } => CostRecord::default(),
            RuleOutcome::Costs(costs) => {
                let note = costs.detail(at).unwrap_or_default();
                CostRecord {
                    cost: costs.get(at),
                    code: note.code.to_owned(),
                    detail: note.detail.to_owned(),
                }
            }
        };
        NodeRecord {
            node: round.nodes.name(at).to_owned(),
            usable: verdict.is_usable(),
            score: verdict.score(),
            reason: match verdict {
                NodeVerdict::Usable { .. } => None,
                NodeVerdict::Unusable { reason, .. } => Some(reason.to_string()),
            },
            costs: round.rules.iter().map(cost).collect(),
        }
    });
    let since = round.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Record {
        namespace: round.subject.namespace.clone(),
        pod: round.subject.name.clone(),
        uid: round.subject.uid.clone(),
        at_unix_millis: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        took_micros: micros(round.took),
        usable: round.plan.usable().count(),
        rules: rules.collect(),
        nodes: nodes.collect(),
        underlay: round.underlay.as_ref().map(underlay_record),
        pod_now: None,
    }
}
