use hashbrown::HashMap;

use super::{
    quantity::push_bits,
    reservations::{Reservation, ReservedView, RowKey, row_key},
};
use crate::{network::Network, tables::table::Row};

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
