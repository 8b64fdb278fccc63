//! What `tautline-nvml` writes and reads: one JSON object a line. NVML hangs when a card falls off
//! the bus, and needs a dynamic linker, which a static binary lacks: so it is read in a process of
//! its own, which the agent ends and restarts.

#![warn(missing_docs)]

use serde::{Deserialize, Serialize};

/// The GPUs of a node at one moment; a line of stdout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reading {
    /// Version of the driver, such as `580.159.04`.
    pub driver: String,
    /// The newest CUDA version that the driver supports, such as `13.0`; empty: unknown.
    pub cuda: String,
    /// All cards, by index.
    pub cards: Vec<Card>,
    /// Processes with memory on a card; a process on two cards is listed twice.
    pub processes: Vec<Process>,
}

/// A card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Card {
    /// `GPU-dc045714-f1e3-e4f0-b27a-21fc860293fe`.
    pub uuid: String,
    /// Index of NVML, from 0.
    pub index: u32,
    /// Minor number of the device node `/dev/nvidiaN`.
    pub minor: u32,
    /// `NVIDIA H200`.
    pub product: String,
    /// `hopper`, as the label `nvidia.com/gpu.family` has it; empty: unknown.
    pub family: String,
    /// Compute capability, such as `(9, 0)`.
    pub compute: (u32, u32),
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Memory in use in bytes.
    pub memory_used_bytes: u64,
    /// Thousandths of the last period in which a kernel ran.
    pub busy_milli: u32,
    /// Why the card cannot be used: `Xid79`, `EccUncorrectable`, `RowRemapFailed`, `PagesPending`,
    /// `ResetRequired`, `Overheated`, `Unresponsive`, `Gone`.
    pub fault: Option<String>,
    /// PCI address, such as `0000:3b:00.0`.
    pub pci: String,
    /// NUMA node of the PCI device.
    pub numa: Option<u32>,
    /// Ways to the other cards.
    pub links: Vec<Link>,
    /// MIG is on, and these instances exist; `None`: it is off, or the card has none.
    pub mig: Option<Vec<MigInstance>>,
}

/// The best way from a card to another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// UUID of the other card.
    pub to: String,
    /// Number of NVLinks between the two; through NVSwitch those of the card; 0: none.
    pub nvlinks: u32,
    /// NVML's topology level: 0 internal, 10 one switch, 20 several, 30 host bridge, 40 NUMA node,
    /// 50 system.
    pub pcie: u32,
}

/// A MIG instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigInstance {
    /// `MIG-...`.
    pub uuid: String,
    /// `1g.10gb`.
    pub profile: String,
    /// First memory slice.
    pub start: u32,
    /// Id of the GPU instance.
    pub gpu_instance: u32,
    /// Id of the compute instance.
    pub compute_instance: u32,
}

/// A process with memory on a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// Process id, as the reader's own PID namespace has it.
    pub pid: u32,
    /// UUID of the card.
    pub card: String,
    /// Memory of the card that the process holds, in bytes.
    pub memory_bytes: u64,
    /// Thousandths of the card's processors in the last period; 0 if the driver does not say.
    pub sm_milli: u32,
}

/// Family of the cards with a compute capability, as GPU feature discovery names it; empty: not
/// known.
pub fn family((major, minor): (u32, u32)) -> &'static str {
    match (major, minor) {
        (1, _) => "tesla",
        (2, _) => "fermi",
        (3, _) => "kepler",
        (5, _) => "maxwell",
        (6, _) => "pascal",
        (7, 0..5) => "volta",
        (7, _) => "turing",
        (8, 0..9) => "ampere",
        (8, _) => "ada-lovelace",
        (9, _) => "hopper",
        (10 | 12, _) => "blackwell",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_follows_the_compute_capability() {
        let of = [
            ((7, 0), "volta"),
            ((7, 5), "turing"),
            ((8, 6), "ampere"),
            ((8, 9), "ada-lovelace"),
        ];
        for (capability, name) in of {
            assert_eq!(family(capability), name);
        }
        assert_eq!(family((0, 0)), "");
    }
}
