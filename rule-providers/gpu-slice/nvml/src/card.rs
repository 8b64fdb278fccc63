//! Reads one GPU card by NVML: its fixed properties, its memory, load and processes, and its
//! health, MIG instances and NVLinks.

use std::fs;

use nvml_wrapper::enum_wrappers::device::{
    EccCounter, MemoryError, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use tautline_nvml::{Card, Process, family};

use crate::health::Health;
use crate::topology::{Remote, pci_address};
use crate::{
    mig,
    processes::{self, supported},
    raw,
};

/// The number of NVLinks of a card that NVML numbers.
const MAX_LINKS: u32 = 18;
/// NVML's affinity scope for NUMA nodes.
const SCOPE_NODE: u32 = 0;
/// The number of failed readings in a row after which a card counts as gone, if NVML does not
/// report it as lost at once.
const MAX_FAILURES: u32 = 3;

/// A card that NVML has found; it stays listed when it is lost.
pub struct Seen<'n> {
    pub device: Device<'n>,
    pub card: Card,
    pub health: Health,
    /// The other ends of the active NVLinks.
    pub remotes: Vec<Remote>,
    /// The last XID, which is logged only once.
    pub logged_xid: Option<u64>,
    /// The time of the last utilization sample, in microseconds.
    since: u64,
    /// The temperature at which the card shuts down, in °C.
    shutdown_temperature: Option<u32>,
    /// The number of failed readings in a row.
    failures: u32,
}

impl<'n> Seen<'n> {
    /// Finds the card with this index and reads its properties that do not change.
    pub fn find(nvml: &'n Nvml, index: u32) -> Result<Self, NvmlError> {
        let device = nvml.device_by_index(index)?;
        let capability = device.cuda_compute_capability();
        let compute = capability.map(|c| (c.major.unsigned_abs(), c.minor.unsigned_abs()));
        let compute = compute.unwrap_or_default();
        let pci = device.pci_info().map(|info| pci_address(&info.bus_id));
        let pci = pci.unwrap_or_default();
        let card = Card {
            uuid: device.uuid()?,
            index,
            product: device.name()?,
            family: family(compute).to_owned(),
            compute,
            numa: numa(&device, &pci),
            pci,
            ..Card::default()
        };
        let shutdown = device.temperature_threshold(TemperatureThreshold::Shutdown);
        Ok(Self {
            device,
            card,
            health: Health::default(),
            remotes: Vec::new(),
            logged_xid: None,
            since: 0,
            shutdown_temperature: shutdown.ok().filter(|t| *t > 0),
            failures: 0,
        })
    }

    /// Reads memory, load, temperature and processes. A card that cannot be read is not an error.
    pub fn read_use(&mut self) -> Result<Vec<Process>, NvmlError> {
        let result = self.try_read_use();
        self.health.reset_required = matches!(result, Err(NvmlError::ResetRequired));
        match result {
            Ok(processes) => {
                self.failures = 0;
                self.health.gone = false;
                Ok(processes)
            }
            // NVML as a whole no longer works, for example since the driver was unloaded or replaced.
            Err(
                error @ (NvmlError::DriverNotLoaded
                | NvmlError::Uninitialized
                | NvmlError::LibRmVersionMismatch),
            ) => Err(error),
            Err(error) => {
                self.failures += 1;
                if matches!(error, NvmlError::GpuLost) || self.failures >= MAX_FAILURES {
                    self.health.gone = !self.health.reset_required;
                }
                self.card.memory_used_bytes = 0;
                self.card.busy_milli = 0;
                Ok(Vec::new())
            }
        }
    }

    fn try_read_use(&mut self) -> Result<Vec<Process>, NvmlError> {
        if let Some(memory) = supported(self.device.memory_info())? {
            self.card.memory_bytes = memory.total;
            self.card.memory_used_bytes = memory.used;
        }
        let load = supported(self.device.utilization_rates())?;
        self.card.busy_milli = load.map_or(0, |load| load.gpu.min(100) * 10);
        if let Some(limit) = self.shutdown_temperature {
            let now = supported(self.device.temperature(TemperatureSensor::Gpu))?;
            self.health.overheated = now.is_some_and(|now| now >= limit);
        }
        processes::read(&self.device, &self.card.uuid, &mut self.since)
    }

    /// Reads the values that seldom change: memory errors, MIG instances and NVLinks. A value that
    /// cannot be read stays unchanged.
    pub fn read_state(&mut self) {
        let device = &self.device;
        if let Ok(errors) = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
        {
            self.health.uncorrectable = errors > 0;
        }
        if let Ok(pending) = device.are_pages_pending_retired() {
            self.health.pages_pending = pending;
        }
        if let Ok(failed) = raw::row_remap_failed(device) {
            self.health.remap_failed = failed;
        }
        if let Ok(mode) = device.mig_mode() {
            self.read_mig(mode.current == 1);
        }
        if let Ok(remotes) = remotes(&self.device) {
            self.remotes = remotes;
        }
    }

    fn read_mig(&mut self, is_on: bool) {
        if !is_on {
            self.card.mig = None;
            self.card.mig_profiles = Vec::new();
            return;
        }
        let known = self.card.mig.get_or_insert_default();
        if let Ok(listed) = mig::instances(&self.device) {
            *known = listed;
        }
        if self.card.mig_profiles.is_empty() {
            match mig::profiles(&self.device) {
                Ok(profiles) => self.card.mig_profiles = profiles,
                Err(error) => eprintln!("no MIG profiles of card {}: {error}", self.card.uuid),
            }
        }
    }
}

/// Returns the NUMA node of a card, from NVML or else from Linux.
fn numa(device: &Device<'_>, pci: &str) -> Option<u32> {
    let nodes = device.memory_affinity(1, SCOPE_NODE).unwrap_or_default();
    if let Some(nodes) = nodes.first().filter(|nodes| **nodes != 0) {
        return Some(nodes.trailing_zeros());
    }
    let file = fs::read_to_string(format!("/sys/bus/pci/devices/{pci}/numa_node"));
    file.ok()?.trim().parse().ok()
}

fn remotes(device: &Device<'_>) -> Result<Vec<Remote>, NvmlError> {
    let mut remotes = Vec::new();
    for index in 0..MAX_LINKS {
        let link = device.link_wrapper_for(index);
        match link.is_active() {
            Ok(true) => {}
            Ok(false) => continue,
            // The card has fewer links, or none.
            Err(NvmlError::NotSupported | NvmlError::InvalidArg) => break,
            Err(error) => return Err(error),
        }
        match raw::remote_type(device, index) {
            Ok(raw::REMOTE_GPU) => {
                remotes.push(Remote::Card(pci_address(&link.remote_pci_info()?.bus_id)));
            }
            Ok(raw::REMOTE_NPU) => {}
            // In virtual machines NVML does not report that a link leads to an NVSwitch.
            _ => remotes.push(Remote::Switch),
        }
    }
    Ok(remotes)
}
