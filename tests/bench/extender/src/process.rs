//! Runs roles of this program as processes, and pins them to cores.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// One of the cores that this process may use.
pub enum Core {
    First,
    Last,
}

/// Pins this thread, and all that it starts, to one core.
pub fn pin_to(core: Core) -> Result<()> {
    let allowed = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let core = match core {
        Core::First => cores.next(),
        Core::Last => cores.next_back(),
    };
    let mut one = CpuSet::new();
    one.set(core.context("no core")?);
    Ok(sched_setaffinity(None, &one)?)
}

/// A child that prints its port and ends when its standard input closes.
pub struct Role {
    child: Child,
    stdin: Option<ChildStdin>,
    pub port: u16,
}

impl Role {
    pub fn start(args: &[&str]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().context("no output")?;
        let line = BufReader::new(out)
            .lines()
            .next()
            .context("the role ended early")??;
        let stdin = child.stdin.take();
        Ok(Self {
            child,
            stdin,
            port: line.trim().parse()?,
        })
    }

    /// CPU time of the process: the sum of its threads, which live as long as it (first field of schedstat, Documentation/scheduler/sched-stats of Linux).
    pub fn cpu(&self) -> Result<Duration> {
        let mut total = Duration::ZERO;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let stat = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            let on_cpu = stat.split(' ').next().context("no schedstat")?;
            total += Duration::from_nanos(on_cpu.parse()?);
        }
        Ok(total)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.stdin.take();
        _ = self.child.wait();
    }
}
