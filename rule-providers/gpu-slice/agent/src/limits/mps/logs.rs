//! Reads and bounds the log files of a daemon. They need a bound, since the run directory is in
//! memory and the daemon logs each connection.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

/// The file for the daemon's output, next to the `control.log` and `server.log` that it writes
/// itself.
const DAEMON_LOG: &str = "daemon.log";
/// The size above which a file is emptied, in bytes of memory.
const MAX_LOG_BYTES: u64 = 4 << 20;

/// Opens the file for the daemon's output.
pub(super) fn open(directory: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.create(true).append(true);
    options.open(directory.join(DAEMON_LOG))
}

/// Empties the files that have grown too large.
pub(super) fn bound(directory: &Path) {
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
pub(super) fn last_line(directory: &Path) -> String {
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
        let mut file = open(path).unwrap();
        let line = [b'x'; 1 << 20];
        for _ in 0..3 {
            file.write_all(&line).unwrap();
        }
        bound(path);
        assert_eq!(file.metadata().unwrap().len(), 3 << 20);
        for _ in 0..2 {
            file.write_all(&line).unwrap();
        }
        bound(path);
        assert_eq!(file.metadata().unwrap().len(), 0);
        file.write_all(b"one\ntwo \n\n").unwrap();
        assert_eq!(last_line(path), "two");
    }

    #[test]
    fn missing_log_has_no_last_line() {
        assert_eq!(last_line(Path::new("/none")), "");
    }
}
