//! Cards as bars: a segment for each pod, fragments hatched, lost cards red.

mod table;

use serde::Serialize;
use tautline_gpu_slice::report::{CardTop, CountedTop, HolderTop, NodeTop, PoolTop, format};

use crate::draw::clean;

pub(super) use table::{pod_name, table, used_text};

/// Longer names are cut.
pub(super) const MAX_NAME: usize = 120;
/// Segments of one bar; further pods are one segment.
const MAX_SEGMENTS: usize = 24;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeBars {
    pub node: String,
    /// Absent: the node does not report its CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_free_milli: Option<i64>,
    pub pools: Vec<PoolBars>,
    pub counted: Vec<CountedTop>,
}

/// The cards of one product and sharing mode.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolBars {
    pub product: String,
    pub mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_memory_bytes: Option<i64>,
    pub bars: Vec<Bar>,
}

/// One card, or adjacent cards with the same pods; amounts are those of each card.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bar {
    /// `3`, or `0-7`.
    pub cards: String,
    pub count: usize,
    pub given_milli: i64,
    pub free_milli: i64,
    /// Free thousandths that the next request is expected not to be able to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented_milli: Option<i64>,
    /// Absent: no agent reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
    /// `ok`, `over-committed`, or the fault.
    pub health: String,
    pub pods: Vec<Segment>,
    /// Pods that are not in `pods`, and what they have.
    pub more_pods: usize,
    pub more_milli: i64,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Used {
    pub memory_bytes: i64,
    /// Thousandths of the time.
    pub busy_milli: i64,
}

/// A pod's part of a card.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Segment {
    pub namespace: String,
    pub pod: String,
    pub milli: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
    /// The device plugin chose the card, and does not report it.
    pub card_is_guessed: bool,
}

impl NodeBars {
    pub(super) fn new(node: NodeTop) -> Self {
        Self {
            node: node.node,
            cpu_free_milli: node.cpu_free_milli,
            pools: node.pools.iter().map(PoolBars::new).collect(),
            counted: node.counted,
        }
    }

    pub(super) fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.pools.iter().flat_map(|pool| &pool.bars)
    }
}

impl PoolBars {
    fn new(pool: &PoolTop) -> Self {
        let alike = pool.cards.chunk_by(|before, card| card.is_like(before));
        Self {
            product: clean(&pool.product, MAX_NAME),
            mode: format::sharing_mode(pool.sharing_mode),
            card_memory_bytes: pool.card_memory_bytes,
            bars: alike.filter_map(Bar::new).collect(),
        }
    }
}

impl Bar {
    fn new(cards: &[CardTop]) -> Option<Self> {
        let (first, last) = (cards.first()?, cards.last()?);
        let name = match cards {
            [one] => clean(&one.card, MAX_NAME),
            _ => format!("{}-{}", first.card, last.card),
        };
        let used = |u: tautline_gpu_slice::report::UsedTop| Used {
            memory_bytes: u.used_bytes,
            busy_milli: u.busy_milli,
        };
        let segment = |holder: &HolderTop| {
            let (namespace, pod) = holder.pod.split_once('/').unwrap_or(("", &holder.pod));
            Segment {
                namespace: namespace.to_owned(),
                pod: pod.to_owned(),
                milli: holder.milli,
                used: holder.used.map(used),
                card_is_guessed: holder.card_is_guessed,
            }
        };
        let (shown, more) = first
            .holders
            .split_at(first.holders.len().min(MAX_SEGMENTS));
        Some(Self {
            cards: name,
            count: cards.len(),
            given_milli: first.held_milli,
            free_milli: first.free_milli,
            fragmented_milli: first.fragmented_milli,
            used: first.used.map(used),
            health: clean(first.health(), MAX_NAME),
            pods: shown.iter().map(segment).collect(),
            more_pods: more.len(),
            more_milli: more.iter().map(|holder| holder.milli).sum(),
        })
    }

    pub(super) fn is_lost(&self) -> bool {
        !matches!(self.health.as_str(), "ok" | "over-committed")
    }

    fn fragmented(&self) -> i64 {
        self.fragmented_milli.unwrap_or(0).min(self.free_milli)
    }
}
