//! The limits of a port, and those of the machine or container: memory and open files.

use std::{path::Path, time::Duration};

use crate::os;

/// The limits of a port.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of open connections; one address may have up to three quarters.
    pub connections: usize,
    /// The maximum number of TLS handshakes in progress, in addition to the connections.
    pub handshakes: usize,
    /// The deadline of a TLS handshake.
    pub handshake: Duration,
    /// The maximum time from the connection's start to its first byte.
    pub first_byte: Duration,
    /// The maximum time from the first byte of a request to the end of its headers.
    pub head: Duration,
    /// The maximum time between two requests; `None` if the protocol itself detects dead peers.
    pub idle: Option<Duration>,
    /// The maximum time from the end of the headers to the end of the body.
    pub body: Duration,
    /// The maximum time from the response's start until the client has read it.
    pub response: Duration,
    /// The maximum bytes of requests and responses in progress; one address may use up to half.
    /// `None` means a quarter of the memory limit, and at least twice the largest request.
    pub request_bytes: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            handshakes: 128,
            handshake: Duration::from_secs(5),
            first_byte: Duration::from_secs(10),
            head: Duration::from_secs(10),
            // kube-scheduler closes idle connections after 90 s, so it never sends into a closing
            // one.
            idle: Some(Duration::from_secs(150)),
            body: Duration::from_secs(3),
            response: Duration::from_secs(10),
            request_bytes: None,
        }
    }
}

impl Limits {
    pub(crate) fn budget(&self, largest: usize) -> usize {
        self.request_bytes.unwrap_or_else(|| {
            let quarter = usize::try_from(memory_bytes() / 4).unwrap_or(usize::MAX);
            quarter.max(largest.saturating_mul(2))
        })
    }

    /// The time between two searches for connections whose phase has lasted too long.
    pub(crate) fn tick(&self) -> Duration {
        let idle = self.idle.unwrap_or(Duration::MAX);
        let shortest = self.first_byte.min(self.head).min(self.response).min(idle);
        (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }
}

/// The bytes that this process may use: the minimum of its cgroups' limits and the machine's
/// memory.
pub fn memory_bytes() -> u64 {
    memory_under(Path::new("/"))
}

fn memory_under(root: &Path) -> u64 {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let mut least = machine(&read("proc/meminfo"));
    // In a container the cgroup's folder is the mount's root; elsewhere it is the path in
    // /proc/self/cgroup, and every folder above it limits too.
    for line in read("proc/self/cgroup").lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|c| c == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for folder in Path::new(path.trim_start_matches('/')).ancestors() {
            let folder = folder.display();
            // Without a limit, version 2 has "max" and version 1 a huge number.
            if let Ok(bytes) = read(&format!("{mount}/{folder}/{file}")).trim().parse() {
                least = least.min(bytes);
            }
        }
    }
    least
}

fn machine(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    // If the file is unreadable, assume the limit of the manifests.
    kib.map_or(1 << 30, |kib| kib << 10)
}

/// Raises the soft limit of open files (often 1,024) to the hard limit, since each connection is
/// one.
pub fn raise_open_files() {
    if let Err(error) = os::raise_open_files() {
        tracing::warn!(%error, "the soft limit of open files stays as it is");
    }
}

/// Limits `connections` to three quarters of the open files that are allowed.
pub(crate) fn connections_within(connections: usize) -> usize {
    let Some(soft) = os::open_files() else {
        return connections;
    };
    let most = usize::try_from(soft / 4 * 3).unwrap_or(usize::MAX).max(1);
    if most < connections {
        tracing::warn!(
            "{connections} connections need more than the {soft} open files that are allowed: \
             {most} are taken; raise the limit (ulimit -n)"
        );
    }
    connections.min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       2048 kB\nMemFree: 5 kB\n";

    fn limit(files: &[(&str, &str)]) -> u64 {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        memory_under(dir.path())
    }

    #[test]
    fn memory_bytes_is_the_lowest_limit() {
        let machine = ("proc/meminfo", MEMINFO);
        let v2 = ("proc/self/cgroup", "0::/a/b\n");
        let v1 = ("proc/self/cgroup", "5:cpu,memory:/a\n0::/\n");
        assert_eq!(limit(&[]), 1 << 30);
        assert_eq!(limit(&[machine]), 2 << 20);
        let max = ("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(limit(&[machine, v2, max]), 2 << 20);
        let above = ("sys/fs/cgroup/a/memory.max", "1048576\n");
        assert_eq!(limit(&[machine, v2, max, above]), 1 << 20);
        let root = ("sys/fs/cgroup/memory.max", "4096\n");
        assert_eq!(
            limit(&[machine, ("proc/self/cgroup", "0::/\n"), root]),
            4096
        );
        let old = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "8192\n");
        assert_eq!(limit(&[machine, v1, old]), 8192);
        let none = (
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        assert_eq!(limit(&[machine, v1, none]), 2 << 20);
    }
}
