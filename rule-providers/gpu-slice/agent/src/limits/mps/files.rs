//! The files of a card's daemon: its pipe, its logs, and the file `ready`.
//!
//! The file passes on whether the daemon enforces limits, from the supervisor to the agent in
//! another process: CUDA runs a client that finds no daemon without MPS, and so without limits. The
//! supervisor writes the daemon's process ID to it; both processes see the host's process IDs.
//!
//! Logs need a bound, since the run directory is in memory and the daemon logs each connection.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The name of the daemon's process, which the kernel shortens to 15 characters.
const COMM: &str = "nvidia-cuda-mps";
/// The file for the daemon's output, next to the `control.log` and `server.log` that it writes
/// itself.
const DAEMON_LOG: &str = "daemon.log";
/// The size above which a file is emptied, in bytes of memory.
const MAX_LOG_BYTES: u64 = 4 << 20;

fn card_dir(run_dir: &Path, card: &str) -> PathBuf {
    run_dir.join("mps").join(card)
}

/// Returns the directory by which clients find the daemon of a card.
pub(super) fn pipe_dir(run_dir: &Path, card: &str) -> PathBuf {
    card_dir(run_dir, card).join("pipe")
}

pub(super) fn log_dir(run_dir: &Path, card: &str) -> PathBuf {
    card_dir(run_dir, card).join("log")
}

/// Returns whether the card's daemon runs, answers and has its settings.
pub(super) fn is_ready(run_dir: &Path, card: &str) -> bool {
    let text = fs::read_to_string(card_dir(run_dir, card).join("ready")).unwrap_or_default();
    // The supervisor may have been killed along with the daemon.
    text.trim().parse::<u32>().is_ok_and(|pid| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
        comm.is_ok_and(|comm| comm.trim() == COMM)
    })
}

/// Writes the process ID of the card's daemon; `None` means that the daemon is not ready.
pub(super) fn set_ready(run_dir: &Path, card: &str, daemon: Option<u32>) -> io::Result<()> {
    let file = card_dir(run_dir, card).join("ready");
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

/// Opens the file for the daemon's output.
pub(super) fn open_log(directory: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.create(true).append(true);
    options.open(directory.join(DAEMON_LOG))
}

/// Empties the files that have grown too large.
pub(super) fn bound_logs(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        let large = entry
            .metadata()
            .is_ok_and(|m| m.is_file() && m.blocks() * 512 > MAX_LOG_BYTES);
        if large {
            let file = fs::OpenOptions::new().write(true).open(entry.path());
            _ = file.and_then(|file| file.set_len(0));
        }
    }
}

/// Returns the last line of the daemon's output.
pub(super) fn last_log_line(directory: &Path) -> String {
    let text = fs::read(directory.join(DAEMON_LOG)).unwrap_or_default();
    let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(500)..]);
    let line = tail.trim_end().lines().next_back();
    line.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn large_log_is_emptied() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut file = open_log(path).unwrap();
        let line = [b'x'; 1 << 20];
        for _ in 0..3 {
            file.write_all(&line).unwrap();
        }
        bound_logs(path);
        assert_eq!(file.metadata().unwrap().len(), 3 << 20);
        for _ in 0..2 {
            file.write_all(&line).unwrap();
        }
        bound_logs(path);
        assert_eq!(file.metadata().unwrap().len(), 0);
        file.write_all(b"one\ntwo \n\n").unwrap();
        assert_eq!(last_log_line(path), "two");
    }

    #[test]
    fn missing_log_has_no_last_line() {
        assert_eq!(last_log_line(Path::new("/none")), "");
    }

    #[test]
    fn process_of_another_name_is_not_ready() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert!(!is_ready(path, "GPU-a"));
        fs::create_dir_all(path.join("mps/GPU-a")).unwrap();
        set_ready(path, "GPU-a", None).unwrap();
        set_ready(path, "GPU-a", Some(std::process::id())).unwrap();
        assert!(!is_ready(path, "GPU-a"));
        set_ready(path, "GPU-a", None).unwrap();
        assert!(!card_dir(path, "GPU-a").join("ready").exists());
    }
}
