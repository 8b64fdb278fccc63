//! Processes that end with the test that started them.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
};

use anyhow::{Context, Result};

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

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }

    /// Asks it to end (SIGTERM) and waits; gives its exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        _ = Command::new("kill").args(["-TERM", &pid]).status();
        self.child.wait().ok().and_then(|s| s.code())
    }

    /// The exit code, if it has ended by itself.
    pub fn ended(&mut self) -> Option<i32> {
        self.child
            .try_wait()
            .ok()
            .flatten()
            .map(|s| s.code().unwrap_or(-1))
    }

    /// Bytes of memory it holds now.
    pub fn resident_bytes(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id()));
        let pages = statm
            .ok()
            .and_then(|s| s.split(' ').nth(1)?.parse::<u64>().ok());
        pages.unwrap_or(0) * 4096
    }

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

/// A port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port())
}
