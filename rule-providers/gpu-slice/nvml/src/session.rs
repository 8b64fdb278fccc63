//! Runs the main loop of `tautline-nvml`: finds the GPU cards of this node, reads them at intervals
//! or after events, and writes each reading.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nvml_wrapper::Nvml;
use tautline_nvml::Reading;

use crate::args::Args;
use crate::card::Seen;
use crate::commands;
use crate::events::{Event, Events};
use crate::library::{self, OpenError};
use crate::raw;
use crate::topology;
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
    let Err(error) = serve(args) else {
        return ExitCode::SUCCESS;
    };
    eprintln!("{error:#}");
    match error.downcast_ref() {
        Some(OpenError::NoDriver(_)) => EXIT_NO_DRIVER.into(),
        _ => ExitCode::FAILURE,
    }
}

fn serve(args: &Args) -> anyhow::Result<()> {
    // The end of stdin ends the process also while NVML starts.
    let commands = (!args.once).then(commands::read_stdin).transpose()?;
    let watchdog = Watchdog::start()?;
    let open = || library::open(args.library.as_deref(), &args.driver_root);
    let nvml = Arc::new(watchdog.guard("nvmlInit", None, START_LIMIT, open)?);
    let stale = Arc::new(AtomicBool::new(false));
    if let Some(commands) = commands {
        commands::serve(Arc::clone(&nvml), commands, Arc::clone(&stale))?;
    }
    let mut node = watchdog.guard("discovery", None, START_LIMIT, || Node::new(&nvml))?;
    loop {
        let due = Instant::now() + args.interval;
        if stale.swap(false, Ordering::AcqRel) {
            node.state_due = Instant::now();
        }
        watchdog.write(node.read(&watchdog)?)?;
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
    state_due: Instant,
    /// The indexes of cards that NVML counts but cannot read.
    missing: BTreeSet<u32>,
}

impl<'n> Node<'n> {
    fn new(nvml: &'n Nvml) -> anyhow::Result<Self> {
        let driver = nvml.sys_driver_version();
        let cuda = nvml.sys_cuda_driver_version().ok();
        let cuda = cuda.map(|cuda| format!("{}.{}", cuda / 1000, cuda % 1000 / 10));
        Ok(Self {
            nvml,
            driver: driver.context("nvmlSystemGetDriverVersion")?,
            cuda: cuda.unwrap_or_default(),
            cards: Vec::new(),
            events: Events::new(nvml),
            state_due: Instant::now(),
            missing: BTreeSet::new(),
        })
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
        let mut processes = Vec::new();
        for seen in &mut self.cards {
            let uuid = seen.card.uuid.clone();
            let of_card = watchdog.guard("reading", Some(&uuid), CARD_LIMIT, || {
                if with_state {
                    seen.read_state();
                }
                seen.read_use()
                    .with_context(|| format!("reading card {uuid}"))
            })?;
            processes.extend(of_card);
        }
        if with_state {
            self.link();
        }
        let cards = self.cards.iter_mut().map(|seen| {
            seen.card.fault = seen.health.fault();
            seen.card.clone()
        });
        Ok(Reading {
            cards: cards.collect(),
            driver: self.driver.clone(),
            cuda: self.cuda.clone(),
            processes,
        })
    }

    fn link(&mut self) {
        let all = self.cards.iter();
        let all: Vec<_> = all.map(|seen| (&*seen.card.pci, &*seen.remotes)).collect();
        let domains = topology::domains(&all);
        for (seen, domain) in self.cards.iter_mut().zip(domains) {
            seen.card.nvlink = domain;
        }
    }

    fn wait(&mut self, due: Instant) {
        let (cards, state_due) = (&mut self.cards, &mut self.state_due);
        self.events.wait(due, |device, event| {
            let mut cards = cards.iter_mut();
            let Some(seen) = cards.find(|seen| raw::same(&seen.device, device)) else {
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
