//! The rule provider of `latency`: `{name: latency, request: 5ms, limit: 20ms}`.
//! Costs are whole microseconds of round-trip time, the worst over the peers.
//!
//! It answers from configured tables of pairs of nodes and zones. A pair without
//! a figure is unknown, and an unknown node cannot be used: a guess is never
//! called a fact.

mod table;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tautline_core::{Snapshot, duration};
use tautline_runtime::feed::Feed;
use tautline_sdk::{
    Compliance, CostAnswer, CostQuestion, EvaluateQuestion, Evaluation, ProviderError, Reference,
    RuleProvider,
};

pub use table::{Table, TableError};

/// The label of the zone that a node is in.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// ConfigMaps with this label (value `enabled`) hold tables.
pub const TABLE_LABEL: &str = "constraint.ciena.com/latency-table";
/// Tables change seldom, and a change must act within seconds.
const VALID_FOR: Duration = Duration::from_secs(1);

/// The provider. Clones share their table.
#[derive(Clone, Debug)]
pub struct Latency {
    feed: Feed,
    table: Arc<ArcSwap<Table>>,
}

impl Latency {
    /// A provider that knows nodes, their zones and pods from `feed`.
    pub fn new(feed: Feed) -> Self {
        Self {
            feed,
            table: Arc::default(),
        }
    }

    /// Replaces the table.
    pub fn set_table(&self, table: Table) {
        self.table.store(Arc::new(table));
    }
}

/// A place as a table may name it: the node, else its zone.
struct Place<'a> {
    node: &'a str,
    zone: Option<&'a str>,
}

fn place<'a>(snapshot: &'a Snapshot, node: &'a str) -> Place<'a> {
    Place {
        node,
        zone: snapshot.node(node).and_then(|n| n.labels.get(ZONE)),
    }
}

/// The round-trip time of two nodes in microseconds; the most specific row wins.
fn rtt_micros(table: &Table, a: &Place<'_>, b: &Place<'_>) -> Option<u64> {
    if a.node == b.node {
        return Some(0);
    }
    let pair = |x: Option<&str>, y: Option<&str>| table.micros(x?, y?);
    pair(Some(a.node), Some(b.node))
        .or_else(|| pair(Some(a.node), b.zone))
        .or_else(|| pair(a.zone, Some(b.node)))
        .or_else(|| pair(a.zone, b.zone))
}

fn show(micros: u64) -> String {
    duration::format(Duration::from_micros(micros))
}

fn to_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl RuleProvider for Latency {
    async fn endpoint_cost(&self, ask: CostQuestion) -> Result<CostAnswer, ProviderError> {
        ask.rule.request_duration()?;
        let limit = ask.rule.limit_duration()?.map(to_micros);
        let (snapshot, table) = (self.feed.snapshot(), self.table.load());
        let peers: Vec<Place<'_>> = ask.peer_nodes.iter().map(|n| place(&snapshot, n)).collect();
        let mut answer = CostAnswer {
            valid_for: VALID_FOR,
            ..CostAnswer::default()
        };
        for node in &ask.eligible_nodes {
            let here = place(&snapshot, node);
            let worst = peers.iter().try_fold((0, ""), |worst, peer| {
                match rtt_micros(&table, &here, peer) {
                    Some(micros) if micros >= worst.0 => Ok((micros, peer.node)),
                    Some(_) => Ok(worst),
                    None => Err(peer.node),
                }
            });
            let (micros, peer) = match worst {
                Ok(worst) => worst,
                Err(peer) => {
                    answer.unusable(node, "NoData", format!("no figure to {peer}"), false);
                    continue;
                }
            };
            match limit {
                Some(limit) if micros > limit => {
                    let detail = format!("{} to {peer} > {}", show(micros), show(limit));
                    answer.unusable(node, "OverLimit", detail, false);
                }
                _ if peer.is_empty() => answer.usable(node, 0, "no peer is placed yet"),
                _ => {
                    let cost = i64::try_from(micros).unwrap_or(i64::MAX);
                    answer.usable(
                        node,
                        cost,
                        format!("{} to {peer}, configured", show(micros)),
                    );
                }
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, ask: EvaluateQuestion) -> Result<Evaluation, ProviderError> {
        let request = ask.rule.request_duration()?.map(to_micros);
        let limit = ask.rule.limit_duration()?.map(to_micros);
        let snapshot = self.feed.snapshot();
        let nodes: Vec<String> = match ask
            .targets
            .values()
            .map(|r| node_of(&snapshot, r))
            .collect()
        {
            Some(nodes) => nodes,
            None => {
                let reason = "not every target is placed".to_owned();
                return Ok(Evaluation {
                    compliance: Compliance::Pending,
                    reason,
                });
            }
        };
        let places: Vec<Place<'_>> = nodes.iter().map(|n| place(&snapshot, n)).collect();
        let table = self.table.load();
        let mut worst = (0, 0, 0);
        for (i, a) in places.iter().enumerate() {
            for (j, b) in places.iter().enumerate().skip(i + 1) {
                match rtt_micros(&table, a, b) {
                    Some(micros) => worst = worst.max((micros, i, j)),
                    None => {
                        let reason = format!("no figure between {} and {}", a.node, b.node);
                        return Ok(Evaluation {
                            compliance: Compliance::Error,
                            reason,
                        });
                    }
                }
            }
        }
        let (micros, i, j) = worst;
        let within = |bound: Option<u64>| bound.is_none_or(|b| micros <= b);
        let compliance = match (within(request), within(limit)) {
            (_, false) => Compliance::Violation,
            (true, true) => Compliance::Compliant,
            (false, true) => Compliance::Limit,
        };
        let between = match places.as_slice() {
            [] | [_] => String::new(),
            all => format!(" between {} and {}", all[i].node, all[j.max(i + 1)].node),
        };
        Ok(Evaluation {
            compliance,
            reason: format!("{}{between}, configured", show(micros)),
        })
    }
}

/// The node of a target: a pod's own; endpoints and others go by their name.
fn node_of(snapshot: &Snapshot, target: &Reference) -> Option<String> {
    match target.kind.as_str() {
        "Pod" => {
            let pod = snapshot.pod(&target.namespace, &target.name)?;
            pod.node.as_deref().map(str::to_owned)
        }
        _ => Some(target.name.clone()),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
