//! Pins processes to cores, and measures their CPU time.

use std::time::Duration;

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

/// CPU time of a process: the sum of its threads, which live as long as it (first field of schedstat, Documentation/scheduler/sched-stats of Linux).
pub fn cpu(id: u32) -> Result<Duration> {
    let mut total = Duration::ZERO;
    for thread in std::fs::read_dir(format!("/proc/{id}/task"))? {
        let stat = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let on_cpu = stat.split(' ').next().context("no schedstat")?;
        total += Duration::from_nanos(on_cpu.parse()?);
    }
    Ok(total)
}
