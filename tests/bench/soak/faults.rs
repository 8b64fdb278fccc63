//! The faults, in an order from the seed: each kind once before any repeats.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::cluster::{CLOCKS, Cluster, EXTENDERS, GPUS, SCRIPTED, bind};
use crate::liar::Through;

/// From the beginning of one fault to that of the next.
const EVERY: Duration = Duration::from_secs(10);
/// Time until a killed process restarts.
const AWAY: Duration = Duration::from_secs(2);
const HANGS: Duration = Duration::from_secs(6);
/// Time by which an extender has opened a stream again.
const LONGEST_BREAK: Duration = Duration::from_secs(60);
/// Percentage of the soak during which all replicas are killed. After it those stay whose
/// memory is checked.
const ALL_DIE: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    GpuSliceKilled,
    GpuSliceHung,
    ClockKilled,
    ClockHung,
    ScriptedKilled,
    ScriptedHung,
    Relabeled,
    ExtenderKilled,
    ExtenderHung,
    ApiServerRestarted,
    ConnectionsCut,
    Garbage,
    ThroughLate,
    ThroughWrong,
    ThroughNever,
    KilledBeforeThrough,
}

const ALL: [Fault; 16] = [
    Fault::GpuSliceKilled,
    Fault::GpuSliceHung,
    Fault::ClockKilled,
    Fault::ClockHung,
    Fault::ScriptedKilled,
    Fault::ScriptedHung,
    Fault::Relabeled,
    Fault::ExtenderKilled,
    Fault::ExtenderHung,
    Fault::ApiServerRestarted,
    Fault::ConnectionsCut,
    Fault::Garbage,
    Fault::ThroughLate,
    Fault::ThroughWrong,
    Fault::ThroughNever,
    Fault::KilledBeforeThrough,
];

impl Fault {
    pub fn text(self) -> &'static str {
        match self {
            Self::GpuSliceKilled => "gpu-slice replica killed",
            Self::GpuSliceHung => "gpu-slice hung, the replica that reserves",
            Self::ClockKilled => "provider of latency killed",
            Self::ClockHung => "provider of latency hung",
            Self::ScriptedKilled => "scripted provider killed",
            Self::ScriptedHung => "scripted provider hung",
            Self::Relabeled => "rule bound to another provider",
            Self::ExtenderKilled => "extender replica killed",
            Self::ExtenderHung => "extender replica hung",
            Self::ApiServerRestarted => "API server killed and restarted",
            Self::ConnectionsCut => "all connections to the extenders cut",
            Self::Garbage => "garbage sent to every port",
            Self::ThroughLate => "gpu-slice acknowledges late on its streams",
            Self::ThroughWrong => "gpu-slice acknowledges wrongly on its streams",
            Self::ThroughNever => "gpu-slice never acknowledges on its streams",
            Self::KilledBeforeThrough => "gpu-slice killed before it acknowledges",
        }
    }
}

pub struct Faults {
    /// The clock that has the rule.
    clock: AtomicUsize,
    pub done: Mutex<BTreeMap<Fault, usize>>,
}

impl Faults {
    pub fn new() -> Self {
        Self {
            clock: AtomicUsize::new(0),
            done: Mutex::default(),
        }
    }

    /// The name of the clock that has the rule.
    pub fn clock(&self) -> char {
        ['a', 'b'][self.clock.load(Ordering::Relaxed)]
    }

    /// Injects faults until the end. A kill hits the most important process: the gpu-slice
    /// replica that reserves, the clock with the rule.
    pub async fn run(&self, cluster: &Cluster, seed: u64, length: Duration) -> Result<()> {
        let (start, mut random) = (Instant::now(), fastrand::Rng::with_seed(seed));
        let mut bag = Vec::new();
        for i in 1.. {
            let due = EVERY * i;
            if due + EVERY > length {
                break;
            }
            tokio::time::sleep(due.saturating_sub(start.elapsed())).await;
            if bag.is_empty() {
                bag = ALL.to_vec();
                random.shuffle(&mut bag);
            }
            let early = start.elapsed() < length * ALL_DIE / 100;
            let fault = match bag.pop() {
                // It has no other replica that lives long.
                Some(Fault::ScriptedKilled) if !early => Fault::ClockKilled,
                Some(fault) => fault,
                None => continue,
            };
            let whom = self.inject(cluster, fault, early, &mut random).await?;
            eprintln!("  {:.0?}: {} {whom}", due, fault.text());
            *self.done.lock().entry(fault).or_default() += 1;
        }
        Ok(())
    }

    /// Returns the process that it hit.
    async fn inject(
        &self,
        cluster: &Cluster,
        fault: Fault,
        early: bool,
        random: &mut fastrand::Rng,
    ) -> Result<&'static str> {
        let bound = self.clock.load(Ordering::Relaxed);
        let extender = EXTENDERS[if early { random.usize(0..2) } else { 1 }];
        match fault {
            Fault::GpuSliceKilled if !early => kill(cluster, GPUS[1]).await,
            Fault::GpuSliceKilled => {
                kill(cluster, cluster.granting().await.unwrap_or(GPUS[1])).await
            }
            Fault::GpuSliceHung => {
                let name = cluster.granting().await.unwrap_or(GPUS[1]);
                hang(cluster, name, HANGS).await
            }
            Fault::ClockKilled => kill(cluster, CLOCKS[bound]).await,
            Fault::ClockHung => hang(cluster, CLOCKS[bound], HANGS).await,
            Fault::ScriptedKilled => kill(cluster, SCRIPTED).await,
            Fault::ScriptedHung => hang(cluster, SCRIPTED, HANGS).await,
            Fault::Relabeled => {
                let other = 1 - bound;
                bind(&cluster.client, CLOCKS[other], CLOCKS[bound]).await?;
                self.clock.store(other, Ordering::Relaxed);
                Ok(CLOCKS[other])
            }
            Fault::ExtenderKilled => kill(cluster, extender).await,
            Fault::ExtenderHung => hang(cluster, extender, HANGS / 2).await,
            Fault::ApiServerRestarted => {
                cluster.plane.lock().await.restart_apiserver().await?;
                Ok("")
            }
            Fault::ConnectionsCut => {
                cluster.to_extenders.close_connections();
                cluster.to_gpus.close_connections();
                Ok("")
            }
            Fault::Garbage => {
                garbage(cluster, random).await;
                Ok("")
            }
            Fault::ThroughLate => lie(cluster, Through::Late).await,
            Fault::ThroughWrong => lie(cluster, Through::Wrong).await,
            Fault::ThroughNever => lie(cluster, Through::Never).await,
            Fault::KilledBeforeThrough => {
                let name = if early {
                    cluster.granting().await.unwrap_or(GPUS[1])
                } else {
                    GPUS[1]
                };
                // A late message is still held back when the process ends.
                start_lying(cluster, Through::Late).await?;
                let killed = kill(cluster, name).await;
                cluster.liar.tell(Through::True);
                killed
            }
        }
    }
}

async fn kill(cluster: &Cluster, name: &'static str) -> Result<&'static str> {
    let mut runs = cluster.member(name)?.program.lock().await;
    runs.process_mut().kill();
    tokio::time::sleep(AWAY).await;
    runs.restart().await?;
    Ok(name)
}

async fn hang(cluster: &Cluster, name: &'static str, time: Duration) -> Result<&'static str> {
    let runs = cluster.member(name)?.program.lock().await;
    runs.process().pause();
    tokio::time::sleep(time).await;
    runs.process().resume();
    Ok(name)
}

/// Ends with the connections: a stream that begins anew knows nothing.
async fn lie(cluster: &Cluster, through: Through) -> Result<&'static str> {
    start_lying(cluster, through).await?;
    tokio::time::sleep(HANGS).await;
    cluster.liar.tell(Through::True);
    cluster.to_gpus.close_connections();
    Ok("")
}

/// Returns once the first message is changed or held back.
async fn start_lying(cluster: &Cluster, through: Through) -> Result<()> {
    let before = cluster.liar.told();
    cluster.liar.tell(through);
    let changed = async {
        while cluster.liar.told() == before {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONGEST_BREAK, changed)
        .await
        .context("no stream of costs is open")
}

/// Noise, and incomplete requests.
async fn garbage(cluster: &Cluster, random: &mut fastrand::Rng) {
    let ports = cluster.members.iter().flat_map(|m| [m.port, m.admin]);
    let noise: Vec<u8> = (0..4096).map(|_| random.u8(..)).collect();
    let frame = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x09\xff\x80\x00\x00\x01";
    let head = b"POST /filter HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n{";
    for port in ports.filter(|p| *p != 0) {
        for bytes in [&noise[..], frame, head] {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await {
                _ = stream.write_all(bytes).await;
            }
        }
    }
}
