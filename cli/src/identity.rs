//! The name of a replica in a Lease.

/// Returns `name`, or the host's name and the process's number, with the time when this process
/// started: the name alone may come again after a restart, while its old term still runs.
pub(crate) fn identity(name: Option<String>) -> String {
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = started.unwrap_or_default().as_millis();
    format!("{}_{millis}", name.unwrap_or_else(host))
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", name.trim(), std::process::id())
}
