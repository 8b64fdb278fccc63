//! A replica's name in a Lease.

/// `name`, or the host's and the process's, and when this process started: the
/// name alone may come again after a restart, while its old term runs on.
pub(crate) fn identity(name: Option<String>) -> String {
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = started.unwrap_or_default().as_millis();
    format!("{}_{millis}", name.unwrap_or_else(host))
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", name.trim(), std::process::id())
}
