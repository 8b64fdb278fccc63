//! Limits how much of its cards a container can use, by the mode of the node.
//!
//! # Limits that a hostile container can evade
//! Only whole cards and MIG are a boundary between tenants that attack each other; the other modes
//! are not.
//! - `none`, `timeslice`: memory has no limit; the processes share the time, so a container with
//!   more processes gets more time.
//! - `mps`: the limits are variables that CUDA reads in the container. A process that changes them
//!   before CUDA starts gets the daemon's default (`--largest-share`, or else the whole card); a
//!   process without `CUDA_MPS_PIPE_DIRECTORY` runs outside of MPS, unless the card is exclusive
//!   (`--exclusive`). The limits hold per process: each of several processes of a container gets
//!   the full share. A container whose user is root on the host may command the daemon through its
//!   pipe. When a server crashes, all its clients fail.
//! - `mig`: the card itself enforces the limit; the bus, the power and the driver stay shared.
//! - `hami-core`: a library in the process enforces the limit. Static programs, setuid programs and
//!   musl ignore `ld.so.preload`; a process may change its variables, or call the driver by `ioctl`
//!   itself. The lock directory is shared, so a container can delay the start of others.
//!
//! Use beyond a share is measured in all modes, and the provider reports it as Violation.

mod driver_root;
pub mod hami_core;
pub mod mps;
pub mod smi;
#[cfg(test)]
mod tests;

use std::{fmt, path::PathBuf, str::FromStr};

use tautline_gpu_placement::{node_inventory::MIG_LIMITS, shape::CARD_MILLI};

pub use driver_root::{DriverError, DriverRoot, exec_in_root};

use crate::{
    assignment::Part,
    cdi::{Edits, Mount},
};

/// The parent of all directories that containers mount, on the host and in the agent's container.
pub const RUN_DIR: &str = "/run/tautline";

/// The mode in which a container's use of its cards is limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Neither time nor memory has a limit.
    #[default]
    None,
    /// The driver's time slices divide the time; memory has no limit.
    Timeslice,
    /// NVIDIA's Multi-Process Service limits memory and processors.
    Mps,
    /// HAMi-core, a library in the container's processes, limits memory and time.
    HamiCore,
    /// MIG limits memory and processors: a slice is a MIG instance of the card.
    Mig,
}

/// The error for a text that is not a [`Mode`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limits {0:?} are unknown; write none, timeslice, mps, hami-core or mig")]
pub struct ModeError(String);

impl Mode {
    const ALL: [Self; 5] = [
        Self::None,
        Self::Timeslice,
        Self::Mps,
        Self::HamiCore,
        Self::Mig,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Timeslice => "timeslice",
            Self::Mps => "mps",
            Self::HamiCore => "hami-core",
            Self::Mig => MIG_LIMITS,
        }
    }
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        let mode = Self::ALL.into_iter().find(|mode| mode.name() == text);
        mode.ok_or_else(|| ModeError(text.to_owned()))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The paths of the files that the modes need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The parent of the directories that containers mount, with the same path on the host and
    /// here.
    pub run_dir: PathBuf,
    /// The path of HAMi-core's `libvgpu.so` on the host; without it mode `hami-core` is refused.
    pub hami_core: Option<PathBuf>,
}

/// The reason why the node's mode cannot limit a container's cards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitError {
    /// The container has several cards, but MPS has a daemon per card, and a process can reach only
    /// one daemon.
    #[error(
        "limits mps hold on one card per container, but this one has {0}; request a part of one \
         card or whole cards (multiples of 1000 tautline.io/gpu-milli), or set the node's limits \
         to hami-core"
    )]
    SeveralCards(String),
    /// The card's MPS daemon is not ready, so CUDA would run the container without MPS.
    #[error(
        "the MPS daemon of card {0} is not ready on this node, so that no limit would hold; see the \
         log of the node's tautline-gpu-mps pod; the container starts once the daemon is ready"
    )]
    NoDaemon(String),
    /// The mode is `hami-core`, but the library's path is not set.
    #[error(
        "limits hami-core need the host's libvgpu.so; start the agent with --hami-core PATH, or \
         set the node's limits to another mode"
    )]
    NoLibrary,
}

/// Returns the changes for one container with these cards and thousandths. Whole cards have no
/// limit.
///
/// # Errors
/// The mode cannot limit these cards, or its daemon is not ready; the container must not start.
pub(crate) fn edits(mode: Mode, settings: &Settings, cards: &[Part]) -> Result<Edits, LimitError> {
    if cards.iter().all(|(_, milli)| *milli >= CARD_MILLI) {
        return Ok(Edits::default());
    }
    match mode {
        Mode::None | Mode::Timeslice | Mode::Mig => Ok(Edits::default()),
        Mode::Mps => mps::ready_edits(&settings.run_dir, cards),
        Mode::HamiCore => hami_core::edits(settings, cards),
    }
}

/// Returns the memory of a part of a card in MiB, at least 1. `None` means that the memory cannot
/// be limited, since the card's is not known, for example because the card shares the node's
/// memory.
pub(crate) fn memory_mib(memory_bytes: u64, milli: u16) -> Option<u64> {
    let bytes = u128::from(memory_bytes) * u128::from(milli) / u128::from(CARD_MILLI);
    let mib = u64::try_from(bytes >> 20).unwrap_or(u64::MAX).max(1);
    (memory_bytes > 0).then_some(mib)
}

/// Returns the processors of a part of a card in percent, at least 1.
fn percent(milli: u16) -> u16 {
    (milli / 10).max(1)
}

fn bind(host_path: PathBuf, container_path: &str, writable: bool) -> Mount {
    let access = if writable { "rw" } else { "ro" };
    let options = ["bind", access, "nosuid", "nodev", "noexec"];
    Mount {
        host_path: host_path.to_string_lossy().into_owned(),
        container_path: container_path.to_owned(),
        options: options.map(str::to_owned).to_vec(),
    }
}
