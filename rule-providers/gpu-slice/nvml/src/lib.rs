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
    /// What a card with MIG on can be cut to; profiles with attributes such as `+me` are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mig_profiles: Vec<MigProfile>,
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

/// A size of MIG instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigProfile {
    /// `1g.10gb`.
    pub name: String,
    /// Memory slices.
    pub size: u32,
    /// Compute slices.
    pub compute: u32,
    /// Memory slices at which an instance can start, ascending.
    pub starts: Vec<u32>,
}

/// A MIG instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigInstance {
    /// `MIG-...`; empty: a GPU instance without a compute instance.
    pub uuid: String,
    /// `1g.10gb`, that of the GPU instance.
    pub profile: String,
    /// First memory slice.
    pub start: u32,
    /// Memory slices.
    pub size: u32,
    /// Compute slices.
    pub compute: u32,
    /// Id of the GPU instance.
    pub gpu_instance: u32,
    /// Id of the compute instance.
    pub compute_instance: u32,
}

/// A line of stdin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// That of the reply.
    pub id: u64,
    /// What to do.
    #[serde(flatten)]
    pub action: Action,
}

/// What a command does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Makes a MIG instance with a compute instance over all of it, unless it is there.
    Create(MigCreate),
    /// Destroys a MIG instance that no process uses.
    Destroy(MigDestroy),
}

/// A MIG instance to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigCreate {
    /// UUID of the card.
    pub card: String,
    /// `2g.20gb`.
    pub profile: String,
    /// First memory slice.
    pub start: u32,
}

/// A MIG instance to destroy; nothing is done if it is not the one that has the id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigDestroy {
    /// UUID of the card.
    pub card: String,
    /// `2g.20gb`.
    pub profile: String,
    /// First memory slice.
    pub start: u32,
    /// Id of the GPU instance.
    pub gpu_instance: u32,
}

/// What a command led to; a line of stdout that begins with [`Reply::PREFIX`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// That of the command.
    pub id: u64,
    /// What it led to.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Reply {
    /// How lines begin that are replies.
    pub const PREFIX: &[u8] = br#"{"id":"#;
}

/// What a command led to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The instance that was made, or was there.
    Instance(MigInstance),
    /// Id of the GPU instance that is gone.
    Destroyed(u32),
    /// Why nothing was done.
    Error(String),
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
    fn commands_and_replies_are_lines_of_json() {
        let text = r#"{"id":1,"create":{"card":"GPU-a","profile":"2g.20gb","start":4}}"#;
        let command: Command = serde_json::from_str(text).unwrap();
        assert!(matches!(&command.action, Action::Create(create) if create.start == 4));
        assert_eq!(serde_json::to_string(&command).unwrap(), text);
        let text = r#"{"id":1,"error":"no"}"#;
        let reply: Reply = serde_json::from_str(text).unwrap();
        assert_eq!(reply.outcome, Outcome::Error("no".into()));
        assert_eq!(serde_json::to_string(&reply).unwrap(), text);
        assert!(text.as_bytes().starts_with(Reply::PREFIX));
    }

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
