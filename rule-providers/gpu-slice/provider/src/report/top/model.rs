use serde::Serialize;
use tautline_gpu_placement::SharingMode;

use crate::uses::UsedTop;

/// The cards of the nodes. Fragmented amounts are absent while no requests are known.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Top {
    /// The nodes with GPUs.
    pub nodes: Vec<NodeTop>,
    /// The sums by product and sharing mode; counted resources come last.
    pub totals: Vec<Total>,
    /// The faults of labels and annotations, and the uses of cards that no record gives.
    pub warnings: Vec<String>,
}

/// The GPUs of a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTop {
    /// The node's name.
    pub node: String,
    /// The free CPU, in thousandths of a core; absent if the node does not report CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_free_milli: Option<i64>,
    /// The free memory, in bytes; absent if the node does not report memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_free_bytes: Option<i64>,
    /// The pools of cards that are known one by one.
    pub pools: Vec<PoolTop>,
    /// The GPUs of which only the number is known.
    pub counted: Vec<CountedTop>,
}

/// The cards of one product and sharing mode.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolTop {
    /// The product, or `unknown`.
    pub product: String,
    /// The name of the sharing mode.
    pub lane: &'static str,
    /// The size of one unit, in thousandths of a card, if the device plugin gives units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_milli: Option<u16>,
    /// The resource that counts the cards; `None`: no resource counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The memory of each card, in bytes; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_memory_bytes: Option<i64>,
    /// The cards, by index on the node.
    pub cards: Vec<CardTop>,
    /// The mode in which pods share the cards.
    #[serde(skip)]
    pub sharing_mode: SharingMode,
}

impl PoolTop {
    /// Returns the runs of adjacent cards that differ only by their numbers: the name of the run,
    /// such as `3` or `0-7`, its first card, and the number of its cards.
    pub fn runs(&self) -> impl Iterator<Item = (String, &CardTop, i64)> {
        let runs = self.cards.chunk_by(|before, card| card.is_like(before));
        runs.filter_map(|cards| match cards {
            [] => None,
            [one] => Some((one.card.clone(), one, 1)),
            [first, .., last] => {
                let name = format!("{}-{}", first.card, last.card);
                Some((name, first, cards.len() as i64))
            }
        })
    }
}

/// A card, and the pods that hold it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardTop {
    /// The index of the card on the node.
    pub card: String,
    /// The UUID of the card, if an agent reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// True if the card has no fault.
    pub healthy: bool,
    /// The reason why the card is not healthy, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// True if pods hold more than the card has.
    pub overcommitted: bool,
    /// The thousandths of the card that pods hold.
    pub held_milli: i64,
    /// The thousandths of the card that are free for further pods.
    pub free_milli: i64,
    /// The use of the card; absent if no agent reports it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedTop>,
    /// The expected amount of free thousandths that the next request cannot use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented_milli: Option<i64>,
    /// The unrounded `fragmented_milli` for sums; 0 if it is absent.
    #[serde(skip)]
    pub fragmented: f64,
    /// The pods that hold parts of the card.
    pub holders: Vec<HolderTop>,
}

impl CardTop {
    /// Returns whether the card follows `before` and differs from it only by its number.
    fn is_like(&self, before: &Self) -> bool {
        let number = |c: &Self| c.card.parse::<u32>().ok();
        let follows = number(before).zip(number(self));
        let same = |c: &Self| (c.held_milli, c.fragmented_milli, c.used);
        follows.is_some_and(|(a, b)| a + 1 == b)
            && same(before) == same(self)
            && before.health() == self.health()
            && before.holders == self.holders
    }

    /// Returns the fault, `over-committed`, or `ok`.
    pub fn health(&self) -> &str {
        match self {
            c if !c.healthy => c.fault.as_deref().unwrap_or("unhealthy"),
            c if c.overcommitted => "over-committed",
            _ => "ok",
        }
    }
}

/// A pod's part of a card.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HolderTop {
    /// The pod as `namespace/name`.
    pub pod: String,
    /// The pod's part, in thousandths of the card.
    pub milli: i64,
    /// The pod's use of the card; absent if no agent reports it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedTop>,
    /// True if the card is not written on the pod, because the device plugin chose it.
    pub card_is_guessed: bool,
}

/// A resource of which only the number is known.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CountedTop {
    /// The name of the resource, such as `nvidia.com/mig-1g.5gb`.
    pub resource: String,
    /// The product, or `unknown`.
    pub product: String,
    /// The number of units that the node has.
    pub units: i64,
    /// The number of units that the node's pods request.
    pub used_units: i64,
    /// The number of free units.
    pub free_units: i64,
}

/// The sums of one product in one sharing mode, or of one counted resource.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Total {
    /// The product, or `unknown`.
    pub product: String,
    /// The sharing mode, or the resource.
    pub lane: String,
    /// The number of nodes.
    pub nodes: usize,
    /// The sums of the cards or units.
    #[serde(flatten)]
    pub amounts: Amounts,
}

/// The sums of cards, or of units.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Amounts {
    /// The sums of cards that are known one by one.
    Cards(CardSums),
    /// The sums of a counted resource.
    Units {
        /// The number of units that nodes have.
        units: i64,
        /// The number of units that pods request.
        used_units: i64,
        /// The number of free units.
        free_units: i64,
    },
}

/// The sums of cards that are known one by one.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardSums {
    /// The number of cards.
    pub cards: usize,
    /// The number of cards with a fault.
    pub unhealthy_cards: usize,
    /// The thousandths of cards that pods hold.
    pub held_milli: i64,
    /// The thousandths of cards that are free.
    pub free_milli: i64,
    /// The expected amount of free thousandths that the next request cannot use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented_milli: Option<i64>,
    /// The unrounded `fragmented_milli`.
    #[serde(skip)]
    pub fragmented: Option<f64>,
}

impl CardSums {
    /// Returns the sums of the cards of all products.
    pub fn of_all(totals: &[Total]) -> Self {
        let sums = totals.iter().filter_map(|total| match total.amounts {
            Amounts::Cards(sums) => Some(sums),
            Amounts::Units { .. } => None,
        });
        let sum = sums.reduce(|a, b| Self {
            cards: a.cards + b.cards,
            unhealthy_cards: a.unhealthy_cards + b.unhealthy_cards,
            held_milli: a.held_milli + b.held_milli,
            free_milli: a.free_milli + b.free_milli,
            fragmented_milli: None,
            fragmented: Option::zip(a.fragmented, b.fragmented).map(|(a, b)| a + b),
        });
        let all = sum.unwrap_or_default();
        Self {
            fragmented_milli: all.fragmented.map(|milli| milli.round() as i64),
            ..all
        }
    }
}
