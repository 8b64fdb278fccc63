//! The rule `bandwidth`: `request` is the wanted rate and `limit` the least accepted one, in bits
//! per second. The rate left for a pair of nodes is the least of its NICs and of the table's row,
//! each less the reservations of other bindings.

mod capacity;
pub(crate) mod lacking;
pub(crate) mod reservations;
mod transfers;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use arc_swap::ArcSwap;
use hashbrown::{HashMap, HashSet};
use tautline_sdk::{
    Compliance, CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError,
};

use super::context::{RuleContext, check_size};
use crate::{
    location::{each_two, location},
    tables::{Tables, table::Bandwidth as BandwidthUnit},
};
use capacity::{
    Bottleneck, OthersReservations, left, others_reservations, push_bits, push_left,
    requested_rates,
};
pub(crate) use reservations::RULE;
use reservations::{Reservations, RowKey, row_key};
use transfers::Transfers;

/// The maximum number of offers that a reason names.
const MAX_NAMED_OFFERS: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct Bandwidth {
    tables: ArcSwap<Tables<BandwidthUnit>>,
    reservations: Reservations,
    transfers: Transfers,
}

/// Returns the nodes of the question's peers, each with the number of its peers.
fn peers(request: &CostRequest) -> BTreeMap<&str, u64> {
    let mut nodes: Vec<&str> = request
        .peers
        .iter()
        .filter_map(|p| p.node.as_deref())
        .collect();
    if nodes.is_empty() {
        nodes.extend(request.peer_nodes.iter().map(String::as_str));
    }
    let mut counts = BTreeMap::new();
    for node in nodes {
        *counts.entry(node).or_default() += 1;
    }
    counts
}

impl Bandwidth {
    pub(crate) fn set_tables(&self, tables: Tables<BandwidthUnit>) {
        self.tables.store(Arc::new(tables));
    }

    /// Ranks these bindings, as `namespace/name`, after all others that exist at the start.
    pub(crate) fn set_lacking(&self, bindings: HashSet<String>) {
        self.reservations.set_lacking(bindings);
    }

    pub(crate) fn cost(
        &self,
        context: RuleContext<'_>,
        request: CostRequest,
    ) -> Result<CostAnswer, ProviderError> {
        let rates = requested_rates(&request.rule)?;
        check_size(&request)?;
        let (snapshot, tables) = (context.network.store.snapshot(), self.tables.load_full());
        let namespace = Some(request.source.namespace.as_str());
        let reservations = &self.reservations;
        let reserved = reservations.at(context.trusted, &snapshot, &tables, namespace);
        let rows = tables.for_namespace(namespace);
        let at = |node| rows.locate(&snapshot, node);
        let row_of = |a, b| rows.rows_to(at(b)).from(at(a));
        // The pod may already be placed: its own reservations count as free, as it is placed again.
        let own = reserved.by_object(&request.source.namespace, &request.source.name);
        let others = others_reservations(&reserved, own, row_of);
        let peers = peers(&request);
        let links: Vec<_> = peers
            .iter()
            .map(|(peer, count)| {
                let nic = others.nic(context.network, peer, *count);
                (*peer, *count, nic, rows.rows_to(at(peer)))
            })
            .collect();
        let total: u64 = peers.values().sum();
        let nodes = request.eligible_nodes.len();
        let mut answer = CostAnswer::with_capacity(nodes);
        // Reservations change with each pod.
        answer.per_pod = true;
        // The cost is the rate by which a node falls short of the request.
        answer.request_cost = (!request.rule.request.is_empty()).then_some(0);
        let mut detail = String::new();
        let mut bases = Vec::with_capacity(request.eligible_nodes.len());
        let mut shared: HashMap<RowKey<'_>, u64> = HashMap::new();
        for node in &request.eligible_nodes {
            let here = at(node);
            let on_node = peers.get(node.as_str()).copied().unwrap_or(0);
            let nic = others.nic(context.network, node, total - on_node);
            let remote = || links.iter().filter(|(peer, ..)| peer != node);
            shared.clear();
            if !rows.is_empty() {
                for (_, count, _, to_peer) in remote() {
                    if let Some(row) = to_peer.from(here) {
                        *shared.entry(row_key(&row)).or_default() += count;
                    }
                }
            }
            let mut worst: Option<(u64, Bottleneck, &str)> = None;
            let mut unknown = None;
            for (peer, _, peer_nic, to_peer) in remote() {
                let row = to_peer.from(here).map(|row| others.row(row, &shared));
                match left(nic, *peer_nic, row, rates.wanted) {
                    None => unknown = unknown.or(Some(*peer)),
                    Some((left, by)) if worst.is_none_or(|(least, ..)| left < least) => {
                        worst = Some((left, by, *peer));
                    }
                    Some(_) => {}
                }
            }
            detail.clear();
            match (worst, unknown) {
                (Some((left, by, peer)), _) if rates.least.is_some_and(|l| left < l) => {
                    push_left(&mut detail, left, peer, by);
                    detail.push_str("; the least is ");
                    push_bits(&mut detail, rates.least.unwrap_or(0));
                    answer.unusable(node, "TooLittle", &detail, false);
                    bases.push(by.basis());
                }
                (_, Some(peer)) => {
                    detail.extend(["no speed to ", peer, " is known, of NICs or by a table"]);
                    answer.unusable(node, "NoData", &detail, false);
                    bases.push("nothing");
                }
                (None, None) => {
                    let why = if peers.is_empty() {
                        "no peer is placed yet"
                    } else {
                        "the same node"
                    };
                    answer.usable(node, 0, why);
                    bases.push("same-node");
                }
                (Some((left, by, peer)), None) => {
                    push_left(&mut detail, left, peer, by);
                    let kilobits = rates.wanted.saturating_sub(left).div_ceil(1_000);
                    answer.usable(node, i64::try_from(kilobits).unwrap_or(i64::MAX), &detail);
                    bases.push(by.basis());
                }
            }
        }
        context.metrics.answered(RULE, bases);
        Ok(answer)
    }

    pub(crate) fn evaluate(
        &self,
        context: RuleContext<'_>,
        request: EvaluationRequest,
    ) -> Result<Evaluation, ProviderError> {
        let rates = requested_rates(&request.rule)?;
        let nodes = match context.nodes_of_targets(&request) {
            Ok(nodes) => nodes,
            Err(evaluation) => return Ok(evaluation),
        };
        let (snapshot, tables) = (context.network.store.snapshot(), self.tables.load_full());
        let (reservations, namespace) = (&self.reservations, request.namespace());
        let reserved = reservations.at(context.trusted, &snapshot, &tables, namespace);
        let rows = tables.for_namespace(namespace);
        let row_of = |a, b| {
            rows.rows_to(location(&snapshot, b))
                .from(location(&snapshot, a))
        };
        let targets: Vec<_> = request.targets.values().collect();
        let own = reserved.of_binding(&targets, rates.wanted);
        // A later reservation takes nothing from earlier ones.
        let others = OthersReservations::before(&reserved, own);
        let each = nodes.len() as u64 - 1;
        let mut shared: HashMap<RowKey<'_>, u64> = HashMap::new();
        let mut between = Vec::new();
        // What lies between two other clusters is no way of this one.
        let is_other_cluster = |name: &str| targets.iter().any(|t| t.cluster == name);
        let judged = |(a, b): &(&String, &String)| !(is_other_cluster(a) && is_other_cluster(b));
        for (a, b) in each_two(&nodes).filter(judged) {
            let row = row_of(a.as_str(), b.as_str());
            if let Some(row) = &row {
                *shared.entry(row_key(row)).or_default() += 1;
            }
            between.push((a.as_str(), b.as_str(), row));
        }
        let nic = |node| others.nic(context.network, node, each);
        let is_node = |name| snapshot.node(name).is_some();
        let mut worst: Option<(u64, Bottleneck, &str, &str)> = None;
        let mut carried: Option<(u64, &str, &str)> = None;
        for (a, b, row) in between {
            let row = row.map(|row| others.row(row, &shared));
            let Some((left, by)) = left(nic(a), nic(b), row, rates.wanted) else {
                context.metrics.answered(RULE, ["nothing"]);
                return Ok(Evaluation::new(
                    Compliance::Error,
                    format!(
                        "no speed between {a} and {b} is known: of NICs by agents on both nodes, or by a table"
                    ),
                ));
            };
            context.metrics.answered(RULE, [by.basis()]);
            if is_node(a)
                && is_node(b)
                && let Some(bits) = self.transfers.result(context.network, a, b)
                && carried.is_none_or(|(least, ..)| bits < least)
            {
                carried = Some((bits, a, b));
            }
            if worst.is_none_or(|(least, ..)| left < least) {
                worst = Some((left, by, a, b));
            }
        }
        let Some((left, by, a, b)) = worst else {
            return Ok(Evaluation::compliant("all on the same node"));
        };
        let mut reason = rates.compare(left);
        let (by, node) = match by {
            Bottleneck::NodeNic => (format!("the NIC of {a}"), Some(a)),
            Bottleneck::PeerNic => (format!("the NIC of {b}"), Some(b)),
            Bottleneck::Table => ("the table".to_owned(), None),
        };
        _ = write!(reason, " for it between {a} and {b}, by {by}");
        if let (true, Some(node), Some(own)) = (left < rates.wanted, node, own) {
            let offers = reserved.first_offers(node, own, MAX_NAMED_OFFERS);
            if !offers.is_empty() {
                _ = write!(reason, "; before it came offer {}", offers.join(", "));
            }
        }
        // A transfer competes with the binding's own traffic, so it gives no Violation.
        if let Some((bits, a, b)) = carried.filter(|c| c.0 < rates.wanted && left >= rates.wanted) {
            let reason = format!(
                "a transfer carried {} between {a} and {b}, next to other traffic",
                rates.compare(bits)
            );
            return Ok(Evaluation::new(Compliance::Limit, reason));
        }
        let level = if left >= rates.wanted {
            Compliance::Compliant
        } else if rates.least.is_some_and(|l| left < l) {
            Compliance::Violation
        } else {
            Compliance::Limit
        };
        Ok(Evaluation::new(level, reason))
    }
}
