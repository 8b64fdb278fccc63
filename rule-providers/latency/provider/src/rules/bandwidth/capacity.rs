//! The rates that a question asks for, and the rate that is left for a pair of nodes.

use std::fmt::Write;

use hashbrown::HashMap;
use tautline_sdk::{ProviderError, Rule};

use super::reservations::{Reservation, ReservedView, RowKey, parse_bits, row_key};
use crate::{network::Network, tables::table::Row};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestedRates {
    pub wanted: u64,
    pub least: Option<u64>,
}

impl RequestedRates {
    /// Returns a rate against the bound that decides: "2 Gbit/s < 3 Gbit/s" below the limit, "10
    /// Gbit/s >= 3 Gbit/s" otherwise.
    pub(super) fn compare(self, bits: u64) -> String {
        let show = |bits| {
            let mut out = String::new();
            push_bits(&mut out, bits);
            out
        };
        let (rate, wanted) = (show(bits), show(self.wanted));
        match self.least {
            Some(least) if bits < least => format!("{rate} < {}", show(least)),
            Some(least) if bits < self.wanted => {
                format!("{rate} >= {} (request {wanted})", show(least))
            }
            Some(least) => format!("{rate} >= {}", show(least)),
            None if self.wanted == 0 => rate,
            None if bits < self.wanted => format!("{rate} < the request {wanted}"),
            None => format!("{rate} >= the request {wanted}"),
        }
    }
}

pub(super) fn requested_rates(rule: &Rule) -> Result<RequestedRates, ProviderError> {
    let read = |field, text| {
        let bad = |e| ProviderError::BadRule(format!("rule {:?}, {field}: {e}", rule.name));
        parse_bits(text).map_err(bad)
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
    Ok(RequestedRates { wanted, least })
}

/// Appends a rate in bits per second, such as "940 Mbit/s".
pub(super) fn push_bits(out: &mut String, bits: u64) {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bottleneck {
    NodeNic,
    PeerNic,
    Table,
}

/// A NIC or a row of a table: its rate and the reservations of others, in bits per second, and the
/// number of the question's own pairs that share it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub bits: u64,
    pub reserved: u64,
    pub own_pairs: u64,
}

impl Link {
    fn left(self, wanted: u64) -> u64 {
        let others = wanted.saturating_mul(self.own_pairs.saturating_sub(1));
        self.bits
            .saturating_sub(self.reserved)
            .saturating_sub(others)
    }
}

/// Returns the rate left for a pair, in bits per second, and its bottleneck; `None` unless both
/// NICs or the row are known.
pub(super) fn left(
    node: Option<Link>,
    peer: Option<Link>,
    row: Option<Link>,
    wanted: u64,
) -> Option<(u64, Bottleneck)> {
    if row.is_none() && (node.is_none() || peer.is_none()) {
        return None;
    }
    [
        (node, Bottleneck::NodeNic),
        (peer, Bottleneck::PeerNic),
        (row, Bottleneck::Table),
    ]
    .into_iter()
    .filter_map(|(link, by)| Some((link?.left(wanted), by)))
    .min_by_key(|(left, _)| *left)
}

pub(super) struct OthersReservations<'a> {
    reserved: &'a ReservedView,
    /// The index of the own reservation: only earlier ones count. With `None` all count.
    before: Option<usize>,
    own_nodes: HashMap<&'a str, u64>,
    own_rows: HashMap<RowKey<'a>, u64>,
}

impl<'a> OthersReservations<'a> {
    /// Returns the NIC of a node, or `None` if its rate is unknown.
    pub fn nic(&self, network: &Network, node: &str, own_pairs: u64) -> Option<Link> {
        let bits = network.nic_bits_per_second(node)?;
        let own = self.own_nodes.get(node).copied().unwrap_or(0);
        Some(Link {
            bits,
            reserved: self.reserved.of_node(node, self.before).saturating_sub(own),
            own_pairs,
        })
    }

    /// Returns the link of a row. `own_pairs` has the number of the question's own pairs by row.
    pub fn row(&self, row: Row<'a>, own_pairs: &HashMap<RowKey<'a>, u64>) -> Link {
        let key = row_key(&row);
        let own = self.own_rows.get(&key).copied().unwrap_or(0);
        Link {
            bits: row.value,
            reserved: self.reserved.of_row(key, self.before).saturating_sub(own),
            own_pairs: own_pairs.get(&key).copied().unwrap_or(1),
        }
    }

    /// Returns the reservations before the own one with this index, or all with `None`.
    pub fn before(reserved: &'a ReservedView, own: Option<usize>) -> Self {
        Self {
            reserved,
            before: own,
            own_nodes: HashMap::new(),
            own_rows: HashMap::new(),
        }
    }
}

pub(super) fn push_left(out: &mut String, left: u64, to: &str, by: Bottleneck) {
    push_bits(out, left);
    out.extend([" left to ", to, ", by "]);
    out.push_str(match by {
        Bottleneck::NodeNic => "the node's NIC",
        Bottleneck::PeerNic => "the peer's NIC",
        Bottleneck::Table => "the table",
    });
}

impl Bottleneck {
    pub fn basis(self) -> &'static str {
        match self {
            Self::NodeNic | Self::PeerNic => "measured",
            Self::Table => "configured",
        }
    }
}

pub(super) fn others_reservations<'a>(
    reserved: &'a ReservedView,
    own: impl Iterator<Item = &'a Reservation>,
    row_of: impl Fn(&'a str, &'a str) -> Option<Row<'a>>,
) -> OthersReservations<'a> {
    let mut others = OthersReservations::before(reserved, None);
    for reservation in own {
        for (a, b) in &reservation.pairs {
            let add = |sum: &mut u64| *sum = sum.saturating_add(reservation.bits);
            for node in [a, b] {
                add(others.own_nodes.entry(node).or_default());
            }
            if let Some(row) = row_of(a, b) {
                add(others.own_rows.entry(row_key(&row)).or_default());
            }
        }
    }
    others
}
