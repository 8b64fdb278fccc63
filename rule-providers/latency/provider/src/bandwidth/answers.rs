//! EndpointCost and Evaluate of `bandwidth`.

use std::fmt::Write;

use hashbrown::HashMap;
use tautline_sdk::{
    Compliance, CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError,
};

use super::{By, Part, RULE, left, push_bits, push_left, usage, wish};
use crate::{
    Latency,
    costs::check_size,
    places::{Place, place},
    reserved::{RowKey, row_key},
    table::Row,
};

/// The node of one peer or several.
struct Peer<'a> {
    node: &'a str,
    /// How many peers there are on it.
    count: u64,
}

fn peers(ask: &CostRequest) -> Vec<Peer<'_>> {
    let mut counts: Vec<Peer<'_>> = Vec::new();
    let one_by_one: Vec<&str> = ask.peers.iter().filter_map(|p| p.node.as_deref()).collect();
    let mut nodes: Vec<&str> = match one_by_one.is_empty() {
        true => ask.peer_nodes.iter().map(String::as_str).collect(),
        false => one_by_one,
    };
    nodes.sort_unstable();
    for node in nodes {
        match counts.last_mut() {
            Some(last) if last.node == node => last.count += 1,
            _ => counts.push(Peer { node, count: 1 }),
        }
    }
    counts
}

impl Latency {
    pub(crate) fn cost_of_bandwidth(&self, ask: CostRequest) -> Result<CostAnswer, ProviderError> {
        let wish = wish(&ask.rule)?;
        check_size(&ask)?;
        let (snapshot, tables) = (self.feed.snapshot(), self.bandwidth_tables.load_full());
        let namespace = Some(ask.source.namespace.as_str());
        let reserved = self.reservations.at(&snapshot, &tables, namespace);
        let pairs = tables.for_namespace(namespace);
        let at = |node| match pairs.is_empty() {
            true => Place { node, zone: None },
            false => place(&snapshot, node),
        };
        let row_of = |a, b| pairs.towards(at(b)).from(at(a));
        // A pod that is placed already is to be placed anew: what it holds is free.
        let own = reserved.by_object(&ask.source.namespace, &ask.source.name);
        let usage = usage(&reserved, own, row_of);
        let peers = peers(&ask);
        let ways: Vec<_> = peers
            .iter()
            .map(|peer| {
                let nic = self
                    .network
                    .nic_bits_per_second(peer.node)
                    .map(|bits| Part {
                        bits,
                        reserved: usage.of_node(peer.node),
                        own_pairs: peer.count,
                    });
                (peer, nic, pairs.towards(at(peer.node)))
            })
            .collect();
        let total: u64 = peers.iter().map(|p| p.count).sum();
        let nodes = ask.eligible_nodes.len();
        // What is reserved changes with each pod, and its own is free to each.
        let mut answer = CostAnswer::with_capacity(nodes);
        let mut detail = String::new();
        let mut bases = Vec::with_capacity(ask.eligible_nodes.len());
        let mut shared: HashMap<RowKey<'_>, u64> = HashMap::new();
        for node in &ask.eligible_nodes {
            let here = at(node);
            let beside: u64 = peers
                .iter()
                .filter(|p| p.node == node)
                .map(|p| p.count)
                .sum();
            let nic = self.network.nic_bits_per_second(node).map(|bits| Part {
                bits,
                reserved: usage.of_node(node),
                own_pairs: total - beside,
            });
            let remote = || ways.iter().filter(|(peer, ..)| peer.node != node);
            shared.clear();
            if !pairs.is_empty() {
                for (peer, _, towards) in remote() {
                    if let Some(row) = towards.from(here) {
                        *shared.entry(row_key(&row)).or_default() += peer.count;
                    }
                }
            }
            let mut worst: Option<(u64, By, &str)> = None;
            let mut unknown = None;
            for (peer, peer_nic, towards) in remote() {
                let row = towards.from(here).map(|row: Row<'_>| {
                    let key = row_key(&row);
                    Part {
                        bits: row.value,
                        reserved: usage.of_row(key),
                        own_pairs: shared.get(&key).copied().unwrap_or(1),
                    }
                });
                match left(nic, *peer_nic, row, wish.wanted) {
                    None => unknown = unknown.or(Some(peer.node)),
                    Some((left, by)) if worst.is_none_or(|(least, ..)| left < least) => {
                        worst = Some((left, by, peer.node));
                    }
                    Some(_) => {}
                }
            }
            detail.clear();
            match (worst, unknown) {
                (Some((left, by, peer)), _) if wish.least.is_some_and(|l| left < l) => {
                    push_left(&mut detail, left, peer, by);
                    detail.push_str("; the least is ");
                    push_bits(&mut detail, wish.least.unwrap_or(0));
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
                    let kilobits = wish.wanted.saturating_sub(left).div_ceil(1_000);
                    answer.usable(node, i64::try_from(kilobits).unwrap_or(i64::MAX), &detail);
                    bases.push(by.basis());
                }
            }
        }
        self.counts.answered(RULE, bases);
        Ok(answer)
    }

    pub(crate) fn judge_bandwidth(
        &self,
        ask: EvaluationRequest,
    ) -> Result<Evaluation, ProviderError> {
        let wish = wish(&ask.rule)?;
        let nodes = match self.nodes_of(&ask) {
            Ok(nodes) => nodes,
            Err(evaluation) => return Ok(evaluation),
        };
        let (snapshot, tables) = (self.feed.snapshot(), self.bandwidth_tables.load_full());
        let reserved = self.reservations.at(&snapshot, &tables, ask.namespace());
        let pairs = tables.for_namespace(ask.namespace());
        let row_of = |a, b| {
            let towards = pairs.towards(place(&snapshot, b));
            towards.from(place(&snapshot, a))
        };
        let targets: Vec<_> = ask.targets.values().collect();
        let own = reserved.of_binding(&targets, wish.wanted);
        let usage = usage(&reserved, own.into_iter(), row_of);
        let each = nodes.len() as u64 - 1;
        let mut rows: HashMap<RowKey<'_>, u64> = HashMap::new();
        let mut between = Vec::new();
        for (i, a) in nodes.iter().enumerate() {
            for b in &nodes[i + 1..] {
                let row = row_of(a.as_str(), b.as_str());
                if let Some(row) = &row {
                    *rows.entry(row_key(row)).or_default() += 1;
                }
                between.push((a.as_str(), b.as_str(), row));
            }
        }
        let nic = |node| {
            let bits = self.network.nic_bits_per_second(node)?;
            let reserved = usage.of_node(node);
            Some(Part {
                bits,
                reserved,
                own_pairs: each,
            })
        };
        let mut worst: Option<(u64, By, &str, &str)> = None;
        let mut carried: Option<(u64, &str, &str)> = None;
        for (a, b, row) in between {
            let row = row.map(|row| Part {
                bits: row.value,
                reserved: usage.of_row(row_key(&row)),
                own_pairs: rows.get(&row_key(&row)).copied().unwrap_or(1),
            });
            let Some((left, by)) = left(nic(a), nic(b), row, wish.wanted) else {
                self.counts.answered(RULE, ["nothing"]);
                return Ok(Evaluation::new(
                    Compliance::Error,
                    format!(
                        "no speed between {a} and {b} is known: of NICs by agents on both nodes, or by a table"
                    ),
                ));
            };
            self.counts.answered(RULE, [by.basis()]);
            if let Some(bits) = self.transfers.carried(&self.network, a, b)
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
        let mut reason = String::new();
        push_bits(&mut reason, left);
        let by = match by {
            By::NodeNic => format!("the NIC of {a}"),
            By::PeerNic => format!("the NIC of {b}"),
            By::Table => "the table".to_owned(),
        };
        _ = write!(reason, " for it between {a} and {b}, by {by}");
        // A transfer competes with the binding's own traffic: it is no Violation.
        if let Some((bits, a, b)) = carried.filter(|c| c.0 < wish.wanted && left >= wish.wanted) {
            let mut reason = "a transfer carried ".to_owned();
            push_bits(&mut reason, bits);
            _ = write!(reason, " between {a} and {b}, beside what was under way");
            return Ok(Evaluation::new(Compliance::Limit, reason));
        }
        let level = if left >= wish.wanted {
            Compliance::Compliant
        } else if wish.least.is_some_and(|l| left < l) {
            Compliance::Violation
        } else {
            Compliance::Limit
        };
        Ok(Evaluation::new(level, reason))
    }
}
