use std::collections::{BTreeSet, HashMap};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nvml_wrapper::Nvml;
use tautline_nvml::{Command, Reading};

use crate::args::Args;
use crate::card::Seen;
use crate::commands;
use crate::events::{Event, Events};
use crate::library::{self, OpenError};
use crate::raw;
use crate::topology::{self, Linked};
use crate::watchdog::Watchdog;

/// The exit status without a library or driver.
const EXIT_NO_DRIVER: u8 = 3;
/// The time in which NVML must start; without persistence mode it starts each card.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The time in which a card must be read.
const CARD_LIMIT: Duration = Duration::from_secs(5);
/// The interval at which the values that seldom change are read.
const STATE_INTERVAL: Duration = Duration::from_secs(30);
/// The interval at which these values are read while cards are missing.
const MISSING_INTERVAL: Duration = Duration::from_secs(5);

/// Reads the cards until stdin closes, or once with `--once`.
pub fn run(args: &Args) -> ExitCode {
    let (watchdog, commands) = match start(args) {
        Ok(started) => started,
        Err(error) => return failed(&error),
    };
    let open = || library::open(args.library.as_deref(), &args.driver_root);
    match watchdog.guard("nvmlInit", None, START_LIMIT, open) {
        Ok(nvml) => match serve(nvml, args, &watchdog, commands) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
        Err(OpenError::NoDriver(why)) => {
            eprintln!("no NVIDIA driver: {why}");
            ExitCode::from(EXIT_NO_DRIVER)
        }
        Err(OpenError::Failed(why)) => failed(&anyhow::anyhow!("NVML does not start: {why}")),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("{error:#}");
    ExitCode::FAILURE
}

/// Starts the watchdog, and the reading of commands unless the cards are read only once.
fn start(args: &Args) -> anyhow::Result<(Watchdog, Option<Receiver<Command>>)> {
    let commands = (!args.once).then(commands::read_stdin).transpose()?;
    Ok((Watchdog::start()?, commands))
}

fn serve(
    nvml: Nvml,
    args: &Args,
    watchdog: &Watchdog,
    commands: Option<Receiver<Command>>,
) -> anyhow::Result<()> {
    let nvml = Arc::new(nvml);
    let stale = Arc::new(AtomicBool::new(false));
    if let Some(commands) = commands {
        commands::serve(Arc::clone(&nvml), commands, Arc::clone(&stale))?;
    }
    read(&nvml, args, watchdog, &stale)
}

fn read(nvml: &Nvml, args: &Args, watchdog: &Watchdog, stale: &AtomicBool) -> anyhow::Result<()> {
    let mut node = watchdog.guard("discovery", None, START_LIMIT, || Node::new(nvml))?;
    loop {
        let due = Instant::now() + args.interval;
        if stale.swap(false, Ordering::AcqRel) {
            node.state_due = Instant::now();
        }
        watchdog.write(node.read(watchdog)?)?;
        if args.once {
            return Ok(());
        }
        let limit = args.interval + CARD_LIMIT;
        watchdog.guard("nvmlEventSetWait", None, limit, || node.wait(due));
    }
}

/// The cards of this node.
struct Node<'n> {
    nvml: &'n Nvml,
    driver: String,
    cuda: String,
    /// The cards, sorted by index.
    cards: Vec<Seen<'n>>,
    events: Events<'n>,
    /// The topology level in NVML of each pair of cards, by their indexes in ascending order.
    pcie: HashMap<(u32, u32), u32>,
    state_due: Instant,
    /// The indexes of cards that NVML counts but cannot read.
    missing: BTreeSet<u32>,
}

impl<'n> Node<'n> {
    fn new(nvml: &'n Nvml) -> anyhow::Result<Self> {
        let cuda = nvml.sys_cuda_driver_version().ok();
        let mut node = Self {
            nvml,
            driver: nvml
                .sys_driver_version()
                .context("nvmlSystemGetDriverVersion")?,
            cuda: cuda
                .map(|cuda| format!("{}.{}", cuda / 1000, cuda % 1000 / 10))
                .unwrap_or_default(),
            cards: Vec::new(),
            events: Events::new(nvml),
            pcie: HashMap::new(),
            state_due: Instant::now(),
            missing: BTreeSet::new(),
        };
        node.find()?;
        Ok(node)
    }

    /// Looks for the cards that are not known yet.
    fn find(&mut self) -> anyhow::Result<()> {
        let count = self.nvml.device_count().context("nvmlDeviceGetCount")?;
        for index in 0..count {
            if self.cards.iter().any(|seen| seen.card.index == index) {
                continue;
            }
            match Seen::find(self.nvml, index) {
                Ok(seen) => {
                    self.missing.remove(&index);
                    self.events.add(&seen);
                    self.cards.push(seen);
                }
                Err(error) if self.missing.insert(index) => {
                    eprintln!("card with index {index} is left out: {error}");
                }
                Err(_) => {}
            }
        }
        self.cards.sort_by_key(|seen| seen.card.index);
        for a in &self.cards {
            for b in self.cards.iter().filter(|b| b.card.index > a.card.index) {
                let pair = (a.card.index, b.card.index);
                let level = || self.nvml.topology_common_ancestor(&a.device, &b.device);
                self.pcie
                    .entry(pair)
                    .or_insert_with(|| level().map_or(50, |level| level.as_c()));
            }
        }
        Ok(())
    }

    fn read(&mut self, watchdog: &Watchdog) -> anyhow::Result<Reading> {
        let with_state = self.state_due <= Instant::now();
        if with_state {
            watchdog.guard("discovery", None, START_LIMIT, || self.find())?;
            let interval = if self.missing.is_empty() {
                STATE_INTERVAL
            } else {
                MISSING_INTERVAL
            };
            self.state_due = Instant::now() + interval;
        }
        let mut reading = Reading {
            driver: self.driver.clone(),
            cuda: self.cuda.clone(),
            ..Reading::default()
        };
        for seen in &mut self.cards {
            let uuid = seen.card.uuid.clone();
            let processes = watchdog.guard("reading", Some(&uuid), CARD_LIMIT, || {
                if with_state {
                    seen.read_state();
                }
                seen.read_use()
                    .with_context(|| format!("reading card {uuid}"))
            })?;
            reading.processes.extend(processes);
        }
        if with_state {
            self.link();
        }
        reading.cards = self
            .cards
            .iter_mut()
            .map(|seen| {
                seen.card.fault = seen.health.fault();
                seen.card.clone()
            })
            .collect();
        Ok(reading)
    }

    fn link(&mut self) {
        let linked: Vec<Linked<'_>> = self
            .cards
            .iter()
            .map(|seen| Linked {
                uuid: &seen.card.uuid,
                pci: &seen.card.pci,
                remotes: &seen.remotes,
            })
            .collect();
        let level = |from: usize, to: usize| {
            let (from, to) = (self.cards[from].card.index, self.cards[to].card.index);
            self.pcie
                .get(&(from.min(to), from.max(to)))
                .copied()
                .unwrap_or(50)
        };
        let links = topology::links(&linked, level);
        for (seen, ways) in self.cards.iter_mut().zip(links) {
            seen.card.links = ways;
        }
    }

    fn wait(&mut self, due: Instant) {
        let (cards, state_due) = (&mut self.cards, &mut self.state_due);
        self.events.wait(due, |device, event| {
            let Some(seen) = cards
                .iter_mut()
                .find(|seen| raw::same(&seen.device, device))
            else {
                return false;
            };
            match event {
                Event::Xid(xid) => {
                    if seen.logged_xid.replace(xid) != Some(xid) {
                        eprintln!("XID {xid} of card {}", seen.card.uuid);
                    }
                    seen.health.xid(xid)
                }
                Event::EccUncorrectable => {
                    *state_due = Instant::now();
                    !std::mem::replace(&mut seen.health.uncorrectable, true)
                }
                Event::MigChanged => {
                    *state_due = Instant::now();
                    true
                }
            }
        });
    }
}
