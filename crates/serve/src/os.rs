//! Handles SIGTERM and the limit of open files, which only Unix has.

use std::io;

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, setrlimit},
};
use tokio::signal::unix::{SignalKind, signal};

/// Completes on SIGTERM.
pub(crate) async fn terminate_signal() {
    match signal(SignalKind::terminate()) {
        Ok(mut signals) => _ = signals.recv().await,
        Err(_) => std::future::pending().await,
    }
}

/// The soft limit of open files; `None` if there is none.
pub(crate) fn open_files() -> Option<u64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some(soft)
}

/// Raises the soft limit of open files to the hard limit.
pub(crate) fn raise_open_files() -> io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}

/// Returns whether a call failed because too many files are open.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EMFILE | Errno::ENFILE))
}
