use serde::Serialize;
use tautline_gpu_placement::SharingMode;

/// Fragmented amounts are absent while no requests are known.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Top {
    /// Nodes with GPUs.
    pub nodes: Vec<NodeTop>,
    /// By product and sharing mode; counted resources come last.
    pub totals: Vec<Total>,
    /// Faults of labels and annotations, and uses of cards that no record gives.
    pub warnings: Vec<String>,
}

/// The GPUs of a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTop {
    /// Node's name.
    pub node: String,
    /// Absent: the node does not report its cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_free_milli: Option<i64>,
    /// Likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_free_bytes: Option<i64>,
    /// Cards that are known one by one.
    pub pools: Vec<PoolTop>,
    /// GPUs of which only the number is known.
    pub counted: Vec<CountedTop>,
}

/// The cards of one sharing mode.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolTop {
    /// Product, or `unknown`.
    pub product: String,
    /// Name of the sharing mode.
    pub lane: &'static str,
    /// Thousandths of one unit, where the device plugin gives units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_milli: Option<u16>,
    /// The resource that the cards stand for; `None`: nothing counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Memory of each card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_memory_bytes: Option<i64>,
    /// By index on the node.
    pub cards: Vec<CardTop>,
    /// How pods share the cards.
    #[serde(skip)]
    pub sharing_mode: SharingMode,
}

/// A card, and the pods that hold it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardTop {
    /// Index on the node.
    pub card: String,
    /// UUID, where an agent reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Whether the card has no fault.
    pub healthy: bool,
    /// Why the card is not healthy, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Pods hold more than the card has.
    pub overcommitted: bool,
    /// Thousandths that pods hold.
    pub held_milli: i64,
    /// Thousandths that are free for further pods.
    pub free_milli: i64,
    /// Absent: no agent reports it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedTop>,
    /// Free thousandths that the next request is expected not to be able to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented_milli: Option<i64>,
    /// The unrounded amount, for sums.
    #[serde(skip)]
    pub fragmented: f64,
    /// The pods that hold parts.
    pub holders: Vec<HolderTop>,
}

impl CardTop {
    /// Whether it is the card before, but for its number: they may share a row.
    pub fn is_like(&self, before: &Self) -> bool {
        let number = |c: &Self| c.card.parse::<u32>().ok();
        let follows = number(before).zip(number(self));
        let same = |c: &Self| (c.held_milli, c.fragmented_milli, c.used);
        follows.is_some_and(|(a, b)| a + 1 == b)
            && same(before) == same(self)
            && before.health() == self.health()
            && before.holders == self.holders
    }

    /// The fault, `over-committed`, or `ok`.
    pub fn health(&self) -> &str {
        match self {
            c if !c.healthy => c.fault.as_deref().unwrap_or("unhealthy"),
            c if c.overcommitted => "over-committed",
            _ => "ok",
        }
    }
}

/// What is used of a card.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsedTop {
    /// Memory of the card.
    pub used_bytes: i64,
    /// Thousandths of the time.
    pub busy_milli: i64,
}

/// A pod's part of a card.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HolderTop {
    /// `namespace/name`.
    pub pod: String,
    /// Thousandths of the card.
    pub milli: i64,
    /// Absent: no agent reports it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedTop>,
    /// Not written on the pod: the device plugin chose the card.
    pub card_is_guessed: bool,
}

/// A resource of which only the number is known.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CountedTop {
    /// Name of the resource, such as `nvidia.com/mig-1g.5gb`.
    pub resource: String,
    /// Product, or `unknown`.
    pub product: String,
    /// Units that the node has.
    pub units: i64,
    /// Units that its pods request.
    pub used_units: i64,
    /// Units left.
    pub free_units: i64,
}

/// The sum of one product in one sharing mode, or of one counted resource.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Total {
    /// Product, or `unknown`.
    pub product: String,
    /// A sharing mode, or a resource.
    pub lane: String,
    /// Number of nodes.
    pub nodes: usize,
    /// The sums.
    #[serde(flatten)]
    pub amounts: Amounts,
}

/// Sums of cards, or of units.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Amounts {
    /// Of cards that are known one by one.
    Cards {
        /// Number of cards.
        cards: usize,
        /// Cards with a fault.
        unhealthy_cards: usize,
        /// Thousandths that pods hold.
        held_milli: i64,
        /// Thousandths that are free.
        free_milli: i64,
        /// Free thousandths that the next request is expected not to be able to use.
        #[serde(skip_serializing_if = "Option::is_none")]
        fragmented_milli: Option<i64>,
        /// The unrounded amount.
        #[serde(skip)]
        fragmented: Option<f64>,
    },
    /// Of a counted resource.
    Units {
        /// Units that nodes have.
        units: i64,
        /// Units that pods request.
        used_units: i64,
        /// Units left.
        free_units: i64,
    },
}

impl Default for Amounts {
    fn default() -> Self {
        Self::Units {
            units: 0,
            used_units: 0,
            free_units: 0,
        }
    }
}
