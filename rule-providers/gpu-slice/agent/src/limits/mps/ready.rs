//! Passes on whether a card's daemon enforces limits, from the supervisor to the agent in another
//! process: CUDA runs a client that finds no daemon without MPS, and so without limits.
//!
//! The supervisor writes the daemon's process ID to a file next to the pipe directory; both
//! processes see the host's process IDs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The name of the daemon's process, which the kernel shortens to 15 characters.
const COMM: &str = "nvidia-cuda-mps";

/// Returns whether the card's daemon runs, answers and has its settings.
pub fn is_ready(run_dir: &Path, card: &str) -> bool {
    let Ok(text) = fs::read_to_string(file(run_dir, card)) else {
        return false;
    };
    let Ok(pid) = text.trim().parse::<u32>() else {
        return false;
    };
    // The supervisor may have been killed along with the daemon.
    let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
    comm.is_ok_and(|comm| comm.trim() == COMM)
}

/// Writes the process ID of the card's daemon; `None` means that the daemon is not ready.
pub(super) fn set(run_dir: &Path, card: &str, daemon: Option<u32>) -> io::Result<()> {
    let file = file(run_dir, card);
    let Some(pid) = daemon else {
        return match fs::remove_file(file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
    };
    let text = pid.to_string();
    if fs::read_to_string(&file).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, file)
}

fn file(run_dir: &Path, card: &str) -> PathBuf {
    run_dir.join("mps").join(card).join("ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_of_another_name_is_not_ready() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert!(!is_ready(path, "GPU-a"));
        fs::create_dir_all(path.join("mps/GPU-a")).unwrap();
        set(path, "GPU-a", None).unwrap();
        set(path, "GPU-a", Some(std::process::id())).unwrap();
        assert!(!is_ready(path, "GPU-a"));
        set(path, "GPU-a", None).unwrap();
        assert!(!file(path, "GPU-a").exists());
    }
}
