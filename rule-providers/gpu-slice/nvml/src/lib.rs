//! Defines the messages that the program `tautline-nvml` writes and reads, one JSON object per
//! line. The program reads the GPUs ("cards") of a node by NVML, in a process of its own that the
//! agent can end and restart: NVML hangs when a card falls off the bus, and it needs a dynamic
//! linker, which the agent's static binary lacks. [`below`] finds files of the driver, for both.

#![warn(missing_docs)]

use std::{
    fmt,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The number of symbolic links that [`below`] follows.
const MAX_LINKS: usize = 8;

/// The GPUs of a node at one moment; a line of stdout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reading {
    /// The version of the driver, such as `580.159.04`.
    pub driver: String,
    /// The newest CUDA version that the driver supports, such as `13.0`; empty if it is unknown.
    pub cuda: String,
    /// All cards, sorted by index.
    pub cards: Vec<Card>,
    /// The processes with memory on a card; a process on two cards is listed twice.
    pub processes: Vec<Process>,
}

/// A GPU of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Card {
    /// The UUID, such as `GPU-dc045714-f1e3-e4f0-b27a-21fc860293fe`.
    pub uuid: String,
    /// The index that NVML gives the card, from 0.
    pub index: u32,
    /// The name of the product, such as `NVIDIA H200`.
    pub product: String,
    /// The architecture, such as `hopper`, as in the label `nvidia.com/gpu.family`; empty if it is
    /// unknown.
    pub family: String,
    /// The compute capability, such as `(9, 0)`.
    pub compute: (u32, u32),
    /// The memory in bytes; 0 if NVML does not report it.
    pub memory_bytes: u64,
    /// The memory in use, in bytes.
    pub memory_used_bytes: u64,
    /// The part of the last sample period in which a kernel ran, in thousandths.
    pub busy_milli: u32,
    /// The reason why the card cannot be used: `Xid79`, `EccUncorrectable`, `RowRemapFailed`,
    /// `PagesPending`, `ResetRequired`, `Overheated`, `Unresponsive`, `Gone`.
    pub fault: Option<String>,
    /// The PCI address, such as `0000:3b:00.0`.
    pub pci: String,
    /// The NUMA node of the card.
    pub numa: Option<u32>,
    /// The number of the NVLink domain: cards with the same number reach each other by NVLink; `None`:
    /// NVLink leads to no other card.
    pub nvlink: Option<u16>,
    /// The MIG instances of the card; `None` if MIG is off or the card does not support it.
    pub mig: Option<Vec<MigInstance>>,
    /// The profiles of the instances that a card with MIG on can have, without profiles that have
    /// attributes such as `+me`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mig_profiles: Vec<MigProfile>,
}

/// A size of MIG instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigProfile {
    /// The name, such as `1g.10gb`.
    pub name: String,
    /// The number of memory slices.
    pub size: u32,
    /// The number of compute slices.
    pub compute: u32,
    /// The memory slices at which an instance can start, in ascending order.
    pub starts: Vec<u32>,
}

/// A MIG instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigInstance {
    /// The UUID, such as `MIG-...`; empty for a GPU instance without a compute instance.
    pub uuid: String,
    /// The profile of the GPU instance, such as `1g.10gb`.
    pub profile: String,
    /// The first memory slice.
    pub start: u32,
    /// The number of memory slices.
    pub size: u32,
    /// The number of compute slices.
    pub compute: u32,
    /// The ID of the GPU instance.
    pub gpu_instance: u32,
}

impl MigInstance {
    /// Returns the place of this instance of a card.
    pub fn slot(&self, card: &str) -> MigSlot {
        MigSlot {
            card: card.to_owned(),
            profile: self.profile.clone(),
            start: self.start,
        }
    }
}

/// A command to the program; a line of stdin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The ID that the reply repeats.
    pub id: u64,
    /// The action to take.
    #[serde(flatten)]
    pub action: Action,
}

/// The action of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Makes a MIG instance with a compute instance over all of it, unless it exists.
    Create(MigSlot),
    /// Destroys a MIG instance that no process uses.
    Destroy(MigDestroy),
}

/// A MIG instance, identified by its place on a card.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MigSlot {
    /// The UUID of the card.
    pub card: String,
    /// The profile, such as `2g.20gb`.
    pub profile: String,
    /// The first memory slice.
    pub start: u32,
}

impl fmt::Display for MigSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (profile, card) = (&self.profile, &self.card);
        write!(f, "instance {profile} {} of card {card}", self.start)
    }
}

/// A MIG instance to destroy. Nothing is done unless the GPU instance with the ID is in this place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigDestroy {
    /// The place of the instance.
    #[serde(flatten)]
    pub slot: MigSlot,
    /// The ID of the GPU instance.
    pub gpu_instance: u32,
}

/// The reply to a command; a line of stdout that begins with [`Reply::PREFIX`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The ID of the command.
    pub id: u64,
    /// The outcome of the command.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Reply {
    /// The bytes with which a line begins if it is a reply.
    pub const PREFIX: &[u8] = br#"{"id":"#;
}

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The instance that was made or existed already.
    Instance(MigInstance),
    /// The ID of the GPU instance that no longer exists.
    Destroyed(u32),
    /// The reason why the command failed.
    Error(String),
}

/// A process with memory on a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// The process ID in the PID namespace of the program.
    pub pid: u32,
    /// The UUID of the card.
    pub card: String,
    /// The memory of the card that the process holds, in bytes.
    pub memory_bytes: u64,
    /// The part of the card's processors that the process used in the last sample period, in
    /// thousandths; 0 if the driver does not report it.
    pub sm_milli: u32,
}

/// Returns the architecture of the cards with a compute capability, as GPU feature discovery names
/// it; empty if it is not known.
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

/// Returns the file to which the links of a path lead, with absolute links relative to `root`;
/// `None` if there is no such file.
pub fn below(root: &Path, path: impl AsRef<Path>) -> Option<PathBuf> {
    let mut path = root.join(path);
    for _ in 0..MAX_LINKS {
        let Ok(target) = path.read_link() else {
            return path.is_file().then_some(path);
        };
        path = match target.components().next() {
            Some(Component::RootDir) => root.join(target.strip_prefix("/").ok()?),
            _ => path.parent()?.join(target),
        };
    }
    None
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
