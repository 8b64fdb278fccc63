use serde::{Deserialize, Serialize};

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Scene {
    /// Version of the driver.
    pub driver: String,
    /// CUDA's version, such as 13000 for 13.0.
    pub cuda: i32,
    /// All calls hang while this is true.
    pub hang: bool,
    /// Cards by index.
    pub cards: Vec<Card>,
    /// Processes on the cards.
    pub processes: Vec<Process>,
}

impl Default for Scene {
    fn default() -> Self {
        Self {
            driver: "580.95.05".into(),
            cuda: 13000,
            hang: false,
            cards: Vec::new(),
            processes: Vec::new(),
        }
    }
}

/// A card. Only `uuid` is needed.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Card {
    pub uuid: String,
    #[serde(default = "product")]
    pub product: String,
    /// null: not supported, as for a card that shares the node's memory.
    #[serde(rename = "memoryMiB", default = "memory")]
    pub memory_mib: Option<u64>,
    /// Memory in use besides that of processes.
    #[serde(rename = "usedMiB", default)]
    pub used_mib: u64,
    #[serde(default = "compute")]
    pub compute: (i32, i32),
    /// Default: the index.
    pub minor: Option<u32>,
    /// Default: by the index, such as `00000000:01:00.0`.
    pub pci: Option<String>,
    pub numa: Option<u32>,
    /// Percent of the time in which kernels run.
    #[serde(default)]
    pub busy: u32,
    /// In °C; the card shuts down at 92.
    #[serde(default = "temperature")]
    pub temperature: u32,
    /// NVLinks.
    #[serde(default)]
    pub links: Vec<Links>,
    /// MIG instances, of the profiles of an H100 with 80 GB; null: MIG is off. What is made and
    /// destroyed by NVML is kept in a file beside this one, with `.mig` after its name, until this
    /// list changes.
    pub mig: Option<Vec<Instance>>,
    /// XIDs; one that is added while the library is loaded becomes an event.
    #[serde(default)]
    pub xids: Vec<u64>,
    /// Memory errors that ECC did not correct; more of them become an event.
    #[serde(default)]
    pub ecc_uncorrectable: u64,
    #[serde(default)]
    pub pages_pending: bool,
    #[serde(default)]
    pub remap_failed: bool,
    /// Calls for this card give NVML_ERROR_GPU_IS_LOST.
    #[serde(default)]
    pub lost: bool,
    /// Calls for this card hang while this is true.
    #[serde(default)]
    pub hang: bool,
}

/// NVLinks with the same other end.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// UUID of a card, or `switch`.
    pub to: String,
    pub count: u32,
    #[serde(default)]
    pub down: bool,
}

/// A MIG instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    pub uuid: String,
    /// `1g.10gb`.
    pub profile: String,
    /// First memory slice.
    pub start: u32,
    /// Id of the GPU instance, from 1; 0: by the place in the list.
    #[serde(default)]
    pub id: u32,
    /// It has no compute instance, and so no device.
    #[serde(default)]
    pub bare: bool,
}

/// Processes with memory on a card.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Process {
    pub pid: Option<u32>,
    /// Instead of `pid`: all processes with this text in their command line, but for this one.
    #[serde(rename = "match")]
    pub text: Option<String>,
    /// UUID or index.
    pub card: CardName,
    /// Id of the GPU instance on a card with MIG.
    pub instance: Option<u32>,
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// Percent of the card's processors.
    #[serde(default)]
    pub sm: u32,
    /// The list that has the process.
    #[serde(default)]
    pub list: List,
}

/// A card by UUID or index.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum CardName {
    Index(usize),
    Uuid(String),
}

/// A list of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum List {
    #[default]
    Compute,
    Graphics,
    Mps,
}

fn product() -> String {
    "NVIDIA H100 80GB HBM3".into()
}

fn memory() -> Option<u64> {
    Some(81559)
}

fn compute() -> (i32, i32) {
    (9, 0)
}

fn temperature() -> u32 {
    40
}
