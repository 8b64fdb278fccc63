//! The name of a replica in a Lease.

/// Returns the pod's name (`POD_NAME`), or the host's name and the process's number, with the time
/// when this process started: the name alone may come again after a restart, while its old term
/// still runs.
pub(crate) fn identity() -> String {
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = started.unwrap_or_default().as_millis();
    let pod = std::env::var("POD_NAME").ok();
    let name = pod.filter(|name| !name.is_empty()).unwrap_or_else(host);
    format!("{name}_{millis}")
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", name.trim(), std::process::id())
}
