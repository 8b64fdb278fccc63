//! The rule `bandwidth`, the order turned round: `request` is what is wanted,
//! `limit` the least that is accepted, in bits a second. What a pair of nodes has
//! left is the least of its NICs and of what a table says the way carries, each
//! less what other bindings reserve.

mod answers;

use std::fmt::Write;

use hashbrown::HashMap;
use tautline_core::quantity;
use tautline_sdk::{ProviderError, Rule};

use crate::{
    reserved::{Held, Reserved, RowKey, row_key},
    table::Row,
};

/// The rule's name.
pub(crate) const RULE: &str = "bandwidth";

/// What a rule asks for, in bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    wanted: u64,
    least: Option<u64>,
}

/// Bits a second as a Kubernetes quantity; `None` if it is empty.
pub(crate) fn bits(text: &str) -> Result<Option<u64>, quantity::QuantityError> {
    if text.is_empty() {
        return Ok(None);
    }
    quantity::parse_milli(text).map(|milli| Some(milli.unsigned_abs() / 1_000))
}

fn wish(rule: &Rule) -> Result<Wish, ProviderError> {
    let read = |field, text| {
        let bad = |e| ProviderError::BadRule(format!("rule {:?}, {field}: {e}", rule.name));
        bits(text).map_err(bad)
    };
    let (request, least) = (read("request", &rule.request)?, read("limit", &rule.limit)?);
    let wanted = request.or(least).unwrap_or(0);
    if least.is_some_and(|l| l > wanted) {
        let name = &rule.name;
        return Err(ProviderError::BadRule(format!(
            "rule {name:?}, limit: it is the least that is accepted, so write one up to the request, {}",
            rule.request
        )));
    }
    Ok(Wish { wanted, least })
}

/// What limits a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    NodeNic,
    PeerNic,
    Table,
}

/// A part of a way: what it carries, what others reserve of it, and how many of
/// the question's own pairs share it.
#[derive(Clone, Copy, Debug)]
struct Part {
    bits: u64,
    reserved: u64,
    own_pairs: u64,
}

impl Part {
    /// What is left for one pair if the question's others have what they want.
    fn left(self, wanted: u64) -> u64 {
        let others = wanted.saturating_mul(self.own_pairs.saturating_sub(1));
        self.bits
            .saturating_sub(self.reserved)
            .saturating_sub(others)
    }
}

/// What a pair has left and what limits it; `None` if that is not known: either
/// both NICs or a row of the table must be.
fn left(
    node: Option<Part>,
    peer: Option<Part>,
    row: Option<Part>,
    wanted: u64,
) -> Option<(u64, By)> {
    if row.is_none() && (node.is_none() || peer.is_none()) {
        return None;
    }
    [(node, By::NodeNic), (peer, By::PeerNic), (row, By::Table)]
        .into_iter()
        .filter_map(|(part, by)| Some((part?.left(wanted), by)))
        .min_by_key(|(left, _)| *left)
}

/// How many pairs of a question touch each node and row, and what is reserved.
struct Usage<'a> {
    reserved: &'a Reserved,
    /// Held by the question's own bindings: not in its way.
    own_nodes: HashMap<&'a str, u64>,
    own_rows: HashMap<RowKey<'a>, u64>,
}

impl<'a> Usage<'a> {
    fn of_node(&self, node: &str) -> u64 {
        let own = self.own_nodes.get(node).copied().unwrap_or(0);
        self.reserved.of_node(node).saturating_sub(own)
    }

    fn of_row(&self, row: RowKey<'a>) -> u64 {
        let own = self.own_rows.get(&row).copied().unwrap_or(0);
        self.reserved.of_row(row).saturating_sub(own)
    }
}

/// Writes bits a second for people: "940 Mbit/s".
pub(crate) fn push_bits(out: &mut String, bits: u64) {
    let (unit, scale) = match bits {
        0..1_000 => ("", 1),
        1_000..1_000_000 => ("k", 1_000),
        1_000_000..1_000_000_000 => ("M", 1_000_000),
        _ => ("G", 1_000_000_000),
    };
    let hundredths = bits / (scale / 100).max(1) % 100;
    _ = match (scale, hundredths) {
        (1, _) | (_, 0) => write!(out, "{} {unit}bit/s", bits / scale),
        (_, h) if h % 10 == 0 => write!(out, "{}.{} {unit}bit/s", bits / scale, h / 10),
        (_, h) => write!(out, "{}.{h:02} {unit}bit/s", bits / scale),
    };
}

fn push_left(out: &mut String, left: u64, to: &str, by: By) {
    push_bits(out, left);
    out.extend([" left to ", to, ", by "]);
    out.push_str(match by {
        By::NodeNic => "the node's NIC",
        By::PeerNic => "the peer's NIC",
        By::Table => "the table",
    });
}

impl By {
    fn basis(self) -> &'static str {
        match self {
            Self::NodeNic | Self::PeerNic => "measured",
            Self::Table => "configured",
        }
    }
}

/// What is reserved, less what `own` holds.
fn usage<'a>(
    reserved: &'a Reserved,
    own: impl Iterator<Item = &'a Held>,
    row_of: impl Fn(&'a str, &'a str) -> Option<Row<'a>>,
) -> Usage<'a> {
    let mut usage = Usage {
        reserved,
        own_nodes: HashMap::new(),
        own_rows: HashMap::new(),
    };
    for held in own {
        for (a, b) in &held.pairs {
            let add = |sum: &mut u64| *sum = sum.saturating_add(held.bits);
            for node in [a, b] {
                add(usage.own_nodes.entry(node).or_default());
            }
            if let Some(row) = row_of(a, b) {
                add(usage.own_rows.entry(row_key(&row)).or_default());
            }
        }
    }
    usage
}

#[cfg(test)]
mod tests;
