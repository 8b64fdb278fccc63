//! Processes that end with the test that started them.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

/// A running process with its log.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

/// `setpriv` makes the kernel end the child if the test dies without unwinding.
static PDEATHSIG: LazyLock<bool> = LazyLock::new(|| {
    Command::new("setpriv")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
});

impl Process {
    /// Starts `program`; its output goes to `dir/name.log`, appended.
    pub fn start(name: &str, program: &Path, args: &[String], dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let out = File::options().create(true).append(true).open(&log)?;
        let mut command = if *PDEATHSIG {
            let mut c = Command::new("setpriv");
            c.args(["--pdeathsig", "KILL", "--"]).arg(program);
            c
        } else {
            Command::new(program)
        };
        let child = command
            .args(args)
            .env("HOME", dir)
            // As deployed.
            .env("MALLOC_ARENA_MAX", "1")
            .env("MALLOC_MMAP_THRESHOLD_", "1048576")
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("{} does not start", program.display()))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// The process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }

    /// Terminates it (SIGTERM), waits, and returns its exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        self.signal("-TERM");
        self.child.wait().ok().and_then(|s| s.code())
    }

    /// Pauses it (SIGSTOP), as on a machine that hangs; its connections stay open.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Resumes it after [`Self::pause`].
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        _ = Command::new("kill").args([signal, &pid]).status();
    }

    /// The exit code, if it has ended.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child
            .try_wait()
            .ok()
            .flatten()
            .map(|s| s.code().unwrap_or(-1))
    }

    /// See [`cpu_seconds`].
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.id())
    }

    /// See [`resident_bytes`].
    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(self.id())
    }

    /// See [`peak_bytes`].
    pub fn peak_bytes(&self) -> u64 {
        peak_bytes(self.id())
    }

    /// The whole log, also of earlier processes with this name; empty if it cannot be read.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of the log, for a failed test.
    pub fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(25)..].join("\n");
        format!("--- {} (last lines)\n{last}\n", self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Seconds of processor time of a process so far, user and system; to 10 ms.
pub fn cpu_seconds(id: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"));
    // proc_pid_stat(5): the name, in parentheses, may contain spaces; fields 12 and 13 after it
    // are utime and stime, in ticks of 1/100 s.
    let ticks = stat.ok().and_then(|stat| {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    });
    ticks.unwrap_or(0) as f64 / 100.0
}

/// Resident memory of a process in bytes.
pub fn resident_bytes(id: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{id}/statm"));
    let pages = statm
        .ok()
        .and_then(|s| s.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Peak memory of a process in bytes.
pub fn peak_bytes(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status"));
    let kilobytes = status.ok().and_then(|s| {
        let line = s.lines().find(|l| l.starts_with("VmHWM:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    kilobytes.unwrap_or(0) * 1024
}

/// A port of loopback that is this process's own until it ends: below the range from which
/// Linux serves outgoing connections, and locked against other test processes.
pub fn free_port() -> Result<u16> {
    static LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let dir = std::env::temp_dir().join("tautline-ports");
    fs::create_dir_all(&dir)?;
    for _ in 0..1000 {
        let port = fastrand::u16(20_000..32_000);
        let path = dir.join(port.to_string());
        let lock = File::options().create(true).append(true).open(path)?;
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            LOCKS.lock().push(lock);
            return Ok(port);
        }
    }
    bail!("no free port from 20000 to 31999")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PATIENCE, eventually};

    #[test]
    fn free_port_returns_each_port_once() {
        let ports: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        let distinct: std::collections::BTreeSet<&u16> = ports.iter().collect();
        assert_eq!(distinct.len(), ports.len());
    }

    #[tokio::test]
    async fn paused_process_uses_no_processor_until_resumed() {
        let dir = tempfile::tempdir().unwrap();
        let args = [
            "-c".into(),
            "trap 'exit 3' TERM; while :; do :; done".into(),
        ];
        let mut busy = Process::start("busy", Path::new("/bin/sh"), &args, dir.path()).unwrap();
        let beyond = async |seconds: f64| {
            let check = async || (busy.cpu_seconds() > seconds).then_some(());
            eventually("it uses the processor", PATIENCE, check, async || "").await;
        };
        beyond(0.0).await;
        assert!(busy.resident_bytes() > 0 && busy.peak_bytes() >= busy.resident_bytes());
        busy.pause();
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", busy.child.id())).unwrap();
        let check = async || stat().contains(") T ").then_some(());
        eventually("it is stopped", PATIENCE, check, async || stat()).await;
        let before = busy.cpu_seconds();
        busy.resume();
        beyond(before).await;
        assert_eq!(busy.terminate(), Some(3));
    }
}
