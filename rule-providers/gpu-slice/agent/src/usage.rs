//! Measures how much of the node's cards each container uses. It finds the containers of a
//! reading's processes by their cgroups.

mod metrics;
mod processes;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tautline_nvml::Reading;
use tautline_proto::gpu::{CardUse, ContainerUse, Use};
use tokio::sync::watch;

use self::processes::Owner;
pub(crate) use self::{metrics::UseMetrics, processes::Processes};

use crate::{
    cgroup::ContainerRef,
    pods::Pods,
    reader::{ReaderState, Snapshot},
};

/// The largest number of containers in a report, which has those with the most memory; a provider
/// refuses more.
const MAX_CONTAINERS: usize = 1_024;
/// The shortest time between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(600);

/// The use of the node's cards at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub at: Instant,
    pub used: Arc<Use>,
}

/// Returns the first container whose pod is on this node, or else only the UID of the innermost
/// pod; without a use.
fn container(pods: &Pods, containers: &[ContainerRef]) -> ContainerUse {
    let known = containers.iter().find_map(|of| {
        let pod = pods.by_uid(&of.pod_uid)?;
        let mut containers = pod.containers.iter();
        let container = containers.find(|c| c.id.as_deref() == Some(&*of.id));
        Some(ContainerUse {
            pod_uid: pod.api_uid.to_string(),
            namespace: pod.namespace.to_string(),
            pod: pod.name.to_string(),
            // A container that is not in the pod's status yet has no name.
            container: container.map_or_else(String::new, |c| c.name.to_string()),
            ..ContainerUse::default()
        })
    });
    known.unwrap_or_else(|| ContainerUse {
        pod_uid: containers
            .last()
            .map_or_else(String::new, |of| of.pod_uid.clone()),
        ..ContainerUse::default()
    })
}

/// Converts readings to uses and metrics.
///
/// # Errors
/// The look-up of processes panicked.
pub(crate) async fn run(
    mut snapshots: watch::Receiver<Snapshot>,
    processes: Processes,
    pods: Arc<Pods>,
    uses: watch::Sender<Option<Measured>>,
    metrics: UseMetrics,
) -> Result<()> {
    let processes = Arc::new(processes);
    let mut warned: Option<Instant> = None;
    loop {
        let snapshot = snapshots.borrow_and_update().clone();
        let measured = match (snapshot.state, snapshot.reading) {
            (ReaderState::Reading, Some(reading)) => {
                let at = Instant::now();
                let (all, of) = (Arc::clone(&processes), Arc::clone(&reading));
                let owners = tokio::task::spawn_blocking(move || owners(&all, &of));
                let owners = owners.await.context("the look-up of processes")?;
                if owners.is_empty() && !reading.processes.is_empty() {
                    warn_unknown(&mut warned, &reading);
                }
                let used = Arc::new(used(&reading, &owners, &pods));
                Some(Measured { at, used })
            }
            // The last reading does not describe the present use.
            _ => None,
        };
        metrics.set(measured.as_ref().map(|m| &*m.used));
        uses.send_replace(measured);
        if snapshots.changed().await.is_err() {
            return Ok(());
        }
    }
}

fn warn_unknown(warned: &mut Option<Instant>, reading: &Reading) {
    if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
        *warned = Some(Instant::now());
        tracing::warn!(
            processes = reading.processes.len(),
            "no process that uses a card is in /proc: nobody's use is known; run the agent's pod \
             with hostPID: true"
        );
    }
}

/// Returns the owners of the reading's processes that have not ended, by process ID.
fn owners(processes: &Processes, reading: &Reading) -> BTreeMap<u32, Owner> {
    let pids = reading.processes.iter().map(|p| p.pid);
    pids.filter_map(|pid| Some((pid, processes.owner(pid)?)))
        .collect()
}

fn key(of: &ContainerUse) -> [&str; 3] {
    [&of.pod_uid, &of.container, &of.card]
}

/// Returns the use of a reading by container and card, sorted by pod UID, container and card. The
/// overhead of MPS servers is only in the figures of the cards.
fn used(reading: &Reading, owners: &BTreeMap<u32, Owner>, pods: &Pods) -> Use {
    let mut containers: Vec<ContainerUse> = Vec::new();
    for process in &reading.processes {
        let named = match owners.get(&process.pid) {
            None | Some(Owner::MpsServer) => continue,
            Some(Owner::Outside { command }) => ContainerUse {
                container: command.clone(),
                ..ContainerUse::default()
            },
            Some(Owner::Pod(containers)) => container(pods, containers),
        };
        let new = ContainerUse {
            card: process.card.clone(),
            ..named
        };
        let at = containers.binary_search_by(|c| key(c).cmp(&key(&new)));
        let at = at.unwrap_or_else(|at| {
            containers.insert(at, new);
            at
        });
        let of = &mut containers[at];
        of.memory_bytes = of.memory_bytes.saturating_add(process.memory_bytes);
        of.sm_milli = of.sm_milli.saturating_add(process.sm_milli).min(1000);
    }
    if containers.len() > MAX_CONTAINERS {
        containers.sort_by_key(|c| std::cmp::Reverse(c.memory_bytes));
        containers.truncate(MAX_CONTAINERS);
    }
    let card = |c: &tautline_nvml::Card| CardUse {
        card: c.uuid.clone(),
        memory_bytes: c.memory_used_bytes,
        busy_milli: c.busy_milli,
    };
    Use {
        cards: reading.cards.iter().map(card).collect(),
        containers,
    }
}

#[cfg(test)]
mod tests {
    use tautline_nvml::{Card, Process};

    use super::*;
    use crate::pods::{PodEntry, entry::ContainerEntry};

    const MIB: u64 = 1 << 20;

    fn process(pid: u32, card: &str, mib: u64, sm_milli: u32) -> Process {
        Process {
            pid,
            card: card.into(),
            memory_bytes: mib * MIB,
            sm_milli,
        }
    }

    fn of_pod(uid: &str, id: &str) -> Owner {
        Owner::Pod(vec![ContainerRef {
            pod_uid: uid.into(),
            id: id.into(),
        }])
    }

    fn pods() -> Arc<Pods> {
        let container = ContainerEntry {
            name: "main".into(),
            id: Some("c1".into()),
            ..ContainerEntry::default()
        };
        Pods::of([PodEntry {
            uid: "u1".into(),
            api_uid: "u1".into(),
            namespace: "ml".into(),
            name: "web".into(),
            containers: [container].into(),
            ..PodEntry::default()
        }])
    }

    fn rows(used: &Use) -> Vec<(&str, &str, &str, &str, u64, u32)> {
        let rows = used.containers.iter().map(|c| {
            let mib = c.memory_bytes / MIB;
            (
                &*c.pod_uid,
                &*c.pod,
                &*c.container,
                &*c.card,
                mib,
                c.sm_milli,
            )
        });
        rows.collect()
    }

    #[test]
    fn processes_are_summed_by_container_and_card() {
        let reading = Reading {
            cards: vec![Card {
                uuid: "GPU-a".into(),
                memory_used_bytes: 9 * MIB,
                busy_milli: 400,
                ..Card::default()
            }],
            processes: vec![
                process(1, "GPU-a", 100, 600),
                process(2, "GPU-a", 50, 700),
                process(2, "GPU-b", 5, 1),
                process(3, "GPU-a", 7, 0),
                process(4, "GPU-a", 66, 0),
                process(5, "GPU-a", 8, 0),
                process(6, "GPU-a", 9, 0),
            ],
            ..Reading::default()
        };
        let owners = [
            (1, of_pod("u1", "c1")),
            (2, of_pod("u1", "c1")),
            (3, of_pod("gone", "c9")),
            (4, Owner::MpsServer),
            (
                5,
                Owner::Outside {
                    command: "Xorg".into(),
                },
            ),
        ];
        let used = used(&reading, &owners.into(), &pods());
        assert_eq!(
            rows(&used),
            [
                ("", "", "Xorg", "GPU-a", 8, 0),
                ("gone", "", "", "GPU-a", 7, 0),
                ("u1", "web", "main", "GPU-a", 150, 1000),
                ("u1", "web", "main", "GPU-b", 5, 1),
            ]
        );
        let card = &used.cards[0];
        assert_eq!((card.memory_bytes, card.busy_milli), (9 * MIB, 400));
    }

    #[test]
    fn a_pod_that_is_known_here_cannot_look_like_another() {
        let reference = |uid: &str| ContainerRef {
            pod_uid: uid.into(),
            id: "c1".into(),
        };
        let find = |first, last| {
            let found = container(&pods(), &[reference(first), reference(last)]);
            (found.pod_uid, found.pod)
        };
        let known = || ("u1".to_owned(), "web".to_owned());
        assert_eq!(find("u1", "u2"), known());
        assert_eq!(find("outer", "u1"), known(), "a node in a container");
        assert_eq!(find("x", "y"), ("y".to_owned(), String::new()));
    }

    #[test]
    fn a_report_has_a_bound_and_keeps_the_largest() {
        let count = MAX_CONTAINERS as u32 + 10;
        let processes = (0..count).map(|pid| process(pid, "GPU-a", u64::from(pid), 0));
        let reading = Reading {
            processes: processes.collect(),
            ..Reading::default()
        };
        let owners = (0..count).map(|pid| (pid, of_pod(&format!("u-{pid}"), "")));
        let used = used(&reading, &owners.collect(), &pods());
        assert_eq!(used.containers.len(), MAX_CONTAINERS);
        assert!(used.containers.iter().all(|c| c.memory_bytes >= 10 * MIB));
    }

    #[tokio::test]
    async fn readings_become_uses_of_this_machines_processes() {
        let (reading, snapshots) = watch::channel(Snapshot::default());
        let (uses, mut measured) = watch::channel(None);
        let processes = Processes::new("/proc".into(), "/".into());
        let metrics = UseMetrics::default();
        tokio::spawn(run(snapshots, processes, pods(), uses, metrics));
        let read = Reading {
            processes: vec![
                process(std::process::id(), "GPU-a", 5, 0),
                process(u32::MAX, "GPU-a", 7, 0),
            ],
            ..Reading::default()
        };
        reading.send_replace(Snapshot {
            reading: Some(Arc::new(read)),
            state: ReaderState::Reading,
            ..Snapshot::default()
        });
        let deadline = Duration::from_secs(30);
        let found = measured.wait_for(Option::is_some);
        let found = tokio::time::timeout(deadline, found).await.unwrap();
        let found = found.unwrap().clone().unwrap();
        let mib: Vec<u64> = found
            .used
            .containers
            .iter()
            .map(|c| c.memory_bytes / MIB)
            .collect();
        assert_eq!(mib, [5], "the other process is not there");
        reading.send_modify(|s| s.state = ReaderState::Failing("it ended".into()));
        let none = measured.wait_for(Option::is_none);
        tokio::time::timeout(deadline, none).await.unwrap().unwrap();
    }
}
