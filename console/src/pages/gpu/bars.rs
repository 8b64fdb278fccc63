//! Shows cards as bars: a segment for each pod, fragments hatched, lost cards red.

mod table;

use serde::Serialize;
use tautline_gpu_slice::report::{
    CardTop, CountedTop, HolderTop, NodeTop, PoolTop, UsedTop, format,
};

use crate::draw::clean;

pub(super) use table::{pod_name, table, used_text};

/// The limit for names; longer ones are cut.
pub(super) const MAX_NAME_CHARS: usize = 120;
/// The maximum number of segments in a bar. Further pods share one segment.
const MAX_SEGMENTS: usize = 24;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeBars {
    pub node: String,
    /// The free CPU in thousandths of a core; absent if the node does not report its CPU.
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
    /// The index of the card, such as `3`, or a range of indexes, such as `0-7`.
    pub cards: String,
    pub count: i64,
    pub given_milli: i64,
    pub free_milli: i64,
    /// The free thousandths of a card that the next request is not expected to be able to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented_milli: Option<i64>,
    /// The use of the card; absent if no agent reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
    /// The health of the card: `ok`, `over-committed`, or the fault.
    pub health: String,
    pub pods: Vec<Segment>,
    /// The number of pods that are not in `pods`.
    pub more_pods: usize,
    /// The thousandths of a card that these pods have.
    pub more_milli: i64,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Used {
    pub memory_bytes: i64,
    /// The part of the time in which the card is busy, in thousandths.
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
    /// True if the card is a guess, because the device plugin chose it and does not report it.
    pub card_is_guessed: bool,
}

impl NodeBars {
    pub(super) fn new(node: &NodeTop) -> Self {
        Self {
            node: node.node.clone(),
            cpu_free_milli: node.cpu_free_milli,
            pools: node.pools.iter().map(PoolBars::new).collect(),
            counted: node.counted.clone(),
        }
    }

    /// Returns whether the use of a card is known.
    pub(super) fn is_measured(&self) -> bool {
        let mut bars = self.pools.iter().flat_map(|pool| &pool.bars);
        bars.any(|bar| bar.used.is_some())
    }
}

impl PoolBars {
    fn new(pool: &PoolTop) -> Self {
        Self {
            product: clean(&pool.product, MAX_NAME_CHARS),
            mode: format::sharing_mode(pool.sharing_mode),
            card_memory_bytes: pool.card_memory_bytes,
            bars: pool.runs().map(Bar::new).collect(),
        }
    }
}

impl Bar {
    fn new((name, first, count): (String, &CardTop, i64)) -> Self {
        let (shown, more) = first
            .holders
            .split_at(first.holders.len().min(MAX_SEGMENTS));
        Self {
            cards: clean(&name, MAX_NAME_CHARS),
            count,
            given_milli: first.held_milli,
            free_milli: first.free_milli,
            fragmented_milli: first.fragmented_milli,
            used: first.used.map(Used::new),
            health: clean(first.health(), MAX_NAME_CHARS),
            pods: shown.iter().map(Segment::new).collect(),
            more_pods: more.len(),
            more_milli: more.iter().map(|holder| holder.milli).sum(),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        !matches!(self.health.as_str(), "ok" | "over-committed")
    }

    fn fragmented(&self) -> i64 {
        self.fragmented_milli.unwrap_or(0).min(self.free_milli)
    }
}

impl Used {
    fn new(used: UsedTop) -> Self {
        Self {
            memory_bytes: used.used_bytes,
            busy_milli: used.busy_milli,
        }
    }
}

impl Segment {
    pub(super) fn new(holder: &HolderTop) -> Self {
        let (namespace, pod) = holder.pod.split_once('/').unwrap_or(("", &holder.pod));
        Self {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            milli: holder.milli,
            used: holder.used.map(Used::new),
            card_is_guessed: holder.card_is_guessed,
        }
    }
}
