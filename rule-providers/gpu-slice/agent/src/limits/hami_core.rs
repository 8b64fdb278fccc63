//! HAMi-core: a library that the dynamic linker loads into each process of a container, where it
//! counts allocations of device memory and delays kernels.
//!
//! The library reads limits by CUDA's ordinal of the card, takes a lock in `/tmp/vgpulock` that all
//! containers of a card share, and stores its counts in `/tmp/cudevshr.cache`: a container with a
//! read-only root needs a writable `/tmp`.

use std::{fs, io, os::unix::fs::PermissionsExt, path::PathBuf};

use tautline_gpu_placement::shape::CARD_MILLI;

use super::{LimitError, Settings, bind, memory_mib, percent};
use crate::{assignment::Part, cdi::Edits};

const LIBRARY: &str = "/usr/local/vgpu/libvgpu.so";
const PRELOAD: &str = "/etc/ld.so.preload";
const LOCK: &str = "/tmp/vgpulock";

pub(super) fn edits(settings: &Settings, cards: &[Part]) -> Result<Edits, LimitError> {
    let library = settings.hami_core.clone().ok_or(LimitError::NoLibrary)?;
    let mut edits = Edits::default();
    let mut set = |name: &str, value: String| edits.env.insert(name.to_owned(), value);
    // CUDA's ordinals then follow NVML's order of the container's cards.
    set("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
    // By default the library limits processors only while HAMi's own monitor runs.
    set("GPU_CORE_UTILIZATION_POLICY", "force".to_owned());
    let mut cards: Vec<_> = cards.iter().collect();
    cards.sort_by_key(|(card, _)| card.index);
    for (ordinal, (card, milli)) in cards.into_iter().enumerate() {
        if *milli < CARD_MILLI {
            if let Some(mib) = memory_mib(card.memory_bytes, *milli) {
                let name = format!("CUDA_DEVICE_MEMORY_LIMIT_{ordinal}");
                set(&name, format!("{mib}m"));
            }
            let name = format!("CUDA_DEVICE_SM_LIMIT_{ordinal}");
            set(&name, percent(*milli).to_string());
        }
    }
    let mut library = bind(library, LIBRARY, false);
    library.options.retain(|o| o != "noexec");
    edits.mounts = vec![
        library,
        bind(preload_file(settings), PRELOAD, false),
        bind(lock_dir(settings), LOCK, true),
    ];
    Ok(edits)
}

/// Writes the files that [`super::edits`] mounts; it must run once, before the first container
/// starts.
///
/// # Errors
/// The run directory cannot be written.
pub(crate) fn prepare(settings: &Settings) -> io::Result<()> {
    let lock = lock_dir(settings);
    fs::create_dir_all(&lock)?;
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o1777))?;
    let preload = preload_file(settings);
    let written = preload.with_extension("new");
    fs::write(&written, format!("{LIBRARY}\n"))?;
    fs::set_permissions(&written, fs::Permissions::from_mode(0o644))?;
    fs::rename(written, preload)
}

fn lock_dir(settings: &Settings) -> PathBuf {
    settings.run_dir.join("hami-core/lock")
}

fn preload_file(settings: &Settings) -> PathBuf {
    settings.run_dir.join("hami-core/ld.so.preload")
}
