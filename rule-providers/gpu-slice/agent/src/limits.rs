//! Limits of a container's use of its cards.
//!
//! # What a hostile container gets around
//! No mode is a boundary between tenants that attack each other; whole cards and MIG are.
//! - `none`, `timeslice`: memory has no limit at all; time is shared by process, so more processes
//!   get more time.
//! - `mps`: the limits are variables that CUDA reads in the container. A process that changes them
//!   before CUDA starts gets the daemon's default (`--largest-share`, else the whole card); a
//!   process without `CUDA_MPS_PIPE_DIRECTORY` runs outside of MPS, unless the card is exclusive
//!   (`--exclusive`). The limits hold per process: several processes of a container get the share
//!   each. A container whose user is root on the host may command the daemon by its pipe. A server
//!   that crashes takes all its clients along.
//! - `mig`: the card holds the limit; what stays shared is the bus, the power and the driver.
//! - `hami-core`: a library in the process. Static programs, setuid programs and musl ignore
//!   `ld.so.preload`; a process may change its variables, or call the driver by `ioctl` itself. The
//!   lock directory is shared, so a container can hold up the start of others.
//!
//! Use beyond a share is measured in all modes, and the provider reports it as Violation.

mod driver_root;
pub mod hami_core;
pub mod mps;
mod mps_edits;
pub mod smi;
#[cfg(test)]
mod tests;
pub(crate) mod timeslices;

use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr};

use tautline_gpu_placement::node_inventory::{InventoryCard, MIG_LIMITS};

pub use driver_root::{DriverError, DriverRoot, exec_in_root};

use crate::injection::Mount;

/// Where all directories that containers mount are, on the host and in the agent's container.
pub const RUN_DIR: &str = "/run/tautline";

/// Thousandths of a whole card.
const WHOLE: u16 = 1000;

/// How a container's use of its cards is limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Not at all.
    #[default]
    None,
    /// Time by the driver's time slices, memory not at all.
    Timeslice,
    /// Memory and processors by NVIDIA's Multi-Process Service.
    Mps,
    /// Memory and time by HAMi-core, a library in the container's processes.
    HamiCore,
    /// Memory and processors by MIG: a slice is an instance of the card.
    Mig,
}

/// The text is no [`Mode`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limits {0:?} are unknown; write none, timeslice, mps, hami-core or mig")]
pub struct ModeError(String);

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        match text {
            "none" => Ok(Self::None),
            "timeslice" => Ok(Self::Timeslice),
            "mps" => Ok(Self::Mps),
            "hami-core" => Ok(Self::HamiCore),
            MIG_LIMITS => Ok(Self::Mig),
            _ => Err(ModeError(text.to_owned())),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Timeslice => "timeslice",
            Self::Mps => "mps",
            Self::HamiCore => "hami-core",
            Self::Mig => MIG_LIMITS,
        })
    }
}

/// Where the files of the modes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Directories that containers mount; the same path on the host and here.
    pub run_dir: PathBuf,
    /// HAMi-core's `libvgpu.so` on the host; `None`: mode `hami-core` is refused.
    pub hami_core: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            run_dir: RUN_DIR.into(),
            hami_core: None,
        }
    }
}

/// What a container gets beside its cards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitEdits {
    /// Variables, in place of those of the image and the pod.
    pub env: BTreeMap<String, String>,
    /// Bind mounts.
    pub mounts: Vec<Mount>,
}

/// A container's cards cannot be limited as the node's mode says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// MPS has a daemon per card, and a process can reach only one daemon.
    #[error(
        "limits mps hold on one card per container, but this one has {0}; request a part of one \
         card or whole cards (multiples of 1000 tautline.io/gpu-milli), or set the node's limits \
         to hami-core"
    )]
    SeveralCards(String),
    /// CUDA would run the container without MPS.
    #[error(
        "the MPS daemon of card {0} is not ready on this node, so that no limit would hold; see the \
         log of the node's tautline-gpu-mps pod; the container starts once the daemon is ready"
    )]
    NoDaemon(String),
    /// Mode `hami-core` without the library.
    #[error(
        "limits hami-core need the host's libvgpu.so; start the agent with --hami-core PATH, or \
         set the node's limits to another mode"
    )]
    NoLibrary,
}

/// The edits for one container with these cards and thousandths. Whole cards have no limit.
///
/// # Errors
/// The mode cannot limit these cards; the container must not start.
pub fn edits(
    mode: Mode,
    settings: &Settings,
    cards: &[(InventoryCard, u16)],
) -> Result<LimitEdits, LimitError> {
    if cards.iter().all(|(_, milli)| *milli >= WHOLE) {
        return Ok(LimitEdits::default());
    }
    match mode {
        Mode::None | Mode::Timeslice | Mode::Mig => Ok(LimitEdits::default()),
        Mode::Mps => mps_edits::edits(settings, cards),
        Mode::HamiCore => hami_core::edits(settings, cards),
    }
}

/// The edits of [`edits`], if what enforces them runs.
///
/// # Errors
/// The container must not start, or not yet.
pub fn checked_edits(
    mode: Mode,
    settings: &Settings,
    cards: &[(InventoryCard, u16)],
) -> Result<LimitEdits, LimitError> {
    let edits = edits(mode, settings, cards)?;
    if mode == Mode::Mps {
        let shares = cards.iter().filter(|(_, milli)| *milli < WHOLE);
        let mut cards = shares.map(|(card, _)| &card.uuid);
        let down = cards.find(|card| !mps::is_ready(&settings.run_dir, card));
        if let Some(card) = down {
            return Err(LimitError::NoDaemon(card.clone()));
        }
    }
    Ok(edits)
}

/// Memory of a part of a card in MiB, at least 1; `None`: that of the card is not known, as where
/// it is the node's own, and nothing can be limited by it.
fn memory_mib(memory_bytes: u64, milli: u16) -> Option<u64> {
    let bytes = u128::from(memory_bytes) * u128::from(milli) / u128::from(WHOLE);
    let mib = u64::try_from(bytes >> 20).unwrap_or(u64::MAX).max(1);
    (memory_bytes > 0).then_some(mib)
}

/// Processors of a part of a card in percent, at least 1.
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
