//! A node's cards as its agent writes them: the annotation `tautline.io/gpu-inventory`.

use serde::{Deserialize, Serialize};

use crate::mig::MigLayout;

/// The node annotation with [`NodeInventory`] as JSON.
pub const INVENTORY_ANNOTATION: &str = "tautline.io/gpu-inventory";
/// The countable resource of a node with an agent: thousandths of cards.
pub const MILLI_RESOURCE: &str = "tautline.io/gpu-milli";
/// The countable resource of a node with an agent: memory of cards in GiB.
pub const MEMORY_RESOURCE: &str = "tautline.io/gpu-memory";

/// The value of [`NodeInventory::limits`] with which slices of cards are MIG instances.
pub const MIG_LIMITS: &str = "mig";

/// The cards of a node with an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInventory {
    /// Cards of the node, sorted by index.
    pub cards: Vec<InventoryCard>,
    /// Mechanism that limits slices: `none`, `timeslice`, `mps`, `mig` or `hami-core`.
    pub limits: String,
}

/// A card of a node with an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InventoryCard {
    /// UUID of the card, such as `GPU-dc045714-f1e3-e4f0-b27a-21fc860293fe`.
    pub uuid: String,
    /// Index of the card in NVML, from 0.
    pub index: u32,
    /// Product name as in the label `nvidia.com/gpu.product`, such as `NVIDIA-H200`.
    pub product: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The reason why the card cannot be used, such as `Xid79`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Number of the NVLink domain: cards with the same number reach each other by NVLink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink: Option<u16>,
    /// Number of the card's NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<u16>,
    /// Layout of MIG instances; present if MIG is on and slices become instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigLayout>,
}

impl NodeInventory {
    /// Returns whether slices are MIG instances: then cards without MIG are given as whole cards
    /// only.
    pub fn is_mig(&self) -> bool {
        self.limits == MIG_LIMITS
    }

    /// Reads the annotation's text.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}
