use std::collections::{BTreeMap, HashMap};

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};
use tautline_nvml::Process;

/// Returns the processes with memory on a card: compute, graphics, and clients of MPS.
///
/// `since` is the time of the last utilization sample, in microseconds, and is updated.
pub fn read(device: &Device<'_>, uuid: &str, since: &mut u64) -> Result<Vec<Process>, NvmlError> {
    let mut memory: BTreeMap<u32, u64> = BTreeMap::new();
    let compute = device.running_compute_processes();
    let mps = device.mps_running_compute_processes();
    for list in [compute, mps, device.running_graphics_processes()] {
        add(&mut memory, &present(list)?);
    }
    if memory.is_empty() {
        return Ok(Vec::new());
    }
    let busy = busy(&present(device.process_utilization_stats(*since))?, since);
    let process = |(pid, memory_bytes)| Process {
        pid,
        card: uuid.to_owned(),
        memory_bytes,
        sm_milli: busy.get(&pid).copied().unwrap_or_default(),
    };
    Ok(memory.into_iter().map(process).collect())
}

/// Returns the value; `None` if the card or its driver does not have it.
pub fn supported<T>(result: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(
            NvmlError::NotSupported
            | NvmlError::NoPermission
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::UnexpectedVariant(_),
        ) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns an empty list if the driver does not have the list.
fn present<T>(list: Result<Vec<T>, NvmlError>) -> Result<Vec<T>, NvmlError> {
    match list {
        Err(NvmlError::NotFound | NvmlError::InvalidArg | NvmlError::InsufficientSize(_)) => {
            Ok(Vec::new())
        }
        list => Ok(supported(list)?.unwrap_or_default()),
    }
}

/// Adds the memory of a list's processes. A process may be in several lists with the same memory,
/// which counts once.
fn add(memory: &mut BTreeMap<u32, u64>, list: &[ProcessInfo]) {
    for process in list.iter().filter(|process| process.pid != 0) {
        let bytes = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => bytes,
            UsedGpuMemory::Unavailable => 0,
        };
        let known = memory.entry(process.pid).or_default();
        *known = bytes.max(*known);
    }
}

/// Returns the part of the card's processors that each process used, in thousandths, from the
/// latest sample of the process.
fn busy(samples: &[ProcessUtilizationSample], since: &mut u64) -> HashMap<u32, u32> {
    let mut latest: HashMap<u32, (u64, u32)> = HashMap::new();
    let fresh = |sample: &&ProcessUtilizationSample| sample.pid != 0 && sample.timestamp > *since;
    for sample in samples.iter().filter(fresh) {
        let known = latest.entry(sample.pid).or_default();
        *known = (*known).max((sample.timestamp, sample.sm_util.min(100) * 10));
    }
    let times = latest.values().map(|(time, _)| *time);
    *since = times.max().unwrap_or(0).max(*since);
    let busy = latest.into_iter();
    busy.map(|(pid, (_, busy))| (pid, busy)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_a_card_lacks_are_no_error() {
        assert_eq!(supported::<()>(Err(NvmlError::NotSupported)).unwrap(), None);
        assert!(supported::<()>(Err(NvmlError::GpuLost)).is_err());
    }

    fn sample(pid: u32, timestamp: u64, sm_util: u32) -> ProcessUtilizationSample {
        ProcessUtilizationSample {
            pid,
            timestamp,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        }
    }

    #[test]
    fn the_latest_sample_counts_once() {
        let mut since = 100;
        let samples = [
            sample(7, 101, 10),
            sample(7, 103, 30),
            sample(8, 100, 50),
            sample(0, 200, 9),
        ];
        assert_eq!(busy(&samples, &mut since), HashMap::from([(7, 300)]));
        assert_eq!(since, 103);
        assert_eq!(busy(&samples, &mut since), HashMap::new());
        assert_eq!(since, 103);
    }

    #[test]
    fn a_sample_over_100_percent_is_cut() {
        assert_eq!(
            busy(&[sample(7, 1, 4_000_000_000)], &mut 0),
            HashMap::from([(7, 1000)])
        );
    }

    #[test]
    fn a_process_in_two_lists_is_one() {
        let info = |pid, used_gpu_memory| ProcessInfo {
            pid,
            used_gpu_memory,
            gpu_instance_id: None,
            compute_instance_id: None,
        };
        let mut memory = BTreeMap::new();
        add(
            &mut memory,
            &[
                info(7, UsedGpuMemory::Used(64)),
                info(0, UsedGpuMemory::Used(1)),
            ],
        );
        add(
            &mut memory,
            &[
                info(7, UsedGpuMemory::Unavailable),
                info(8, UsedGpuMemory::Used(2)),
            ],
        );
        assert_eq!(memory, BTreeMap::from([(7, 64), (8, 2)]));
    }
}
