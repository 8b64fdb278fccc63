use std::ffi::{c_uint, c_ulonglong};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND, nvmlReturn_t,
};

use crate::play::with_card;
use crate::scene::{CardName, List, Process, Scene};
use crate::write;

/// A process on a card.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    pub pid: u32,
    /// Id of the GPU instance.
    pub instance: Option<u32>,
    pub bytes: u64,
    pub sm: u32,
}

/// Processes on a card, of one list or all.
pub fn on_card(scene: &Scene, index: usize, list: Option<List>) -> Vec<Running> {
    let is_here = |process: &&Process| match &process.card {
        CardName::Index(card) => *card == index,
        CardName::Uuid(uuid) => scene.cards[index].uuid == *uuid,
    };
    let wanted = scene.processes.iter().filter(is_here);
    let wanted = wanted.filter(|process| list.is_none_or(|list| list == process.list));
    wanted.flat_map(running).collect()
}

fn running(process: &Process) -> Vec<Running> {
    let mut pids: Vec<u32> = process.pid.into_iter().collect();
    if let Some(text) = &process.text {
        pids.extend(matching(text));
    }
    let of = |pid| Running {
        pid,
        instance: process.instance,
        bytes: process.memory_mib << 20,
        sm: process.sm,
    };
    pids.into_iter().map(of).collect()
}

fn matching(text: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&words).replace('\0', " ");
        *pid != std::process::id() && line.contains(text)
    })
    .collect()
}

unsafe fn list(
    device: nvmlDevice_t,
    count: *mut c_uint,
    out: *mut nvmlProcessInfo_t,
    list: List,
) -> nvmlReturn_t {
    let infos = with_card(device, |scene, index, _| {
        let info = |running: Running| nvmlProcessInfo_t {
            pid: running.pid,
            usedGpuMemory: running.bytes,
            gpuInstanceId: running.instance.unwrap_or(u32::MAX),
            computeInstanceId: running.instance.map_or(u32::MAX, |_| 0),
        };
        Ok(on_card(scene, index, Some(list))
            .into_iter()
            .map(info)
            .collect())
    });
    unsafe { write::list(out, count, infos) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    out: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    unsafe { list(device, count, out, List::Compute) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    out: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    unsafe { list(device, count, out, List::Graphics) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    out: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    unsafe { list(device, count, out, List::Mps) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    out: *mut nvmlProcessUtilizationSample_t,
    count: *mut c_uint,
    since: c_ulonglong,
) -> nvmlReturn_t {
    let samples = with_card(device, |scene, index, _| {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_micros());
        let now = u64::try_from(now).unwrap_or(u64::MAX).max(since + 1);
        let sample = |running: &Running| nvmlProcessUtilizationSample_t {
            pid: running.pid,
            timeStamp: now,
            smUtil: running.sm,
            memUtil: 0,
            encUtil: 0,
            decUtil: 0,
        };
        let running = on_card(scene, index, None);
        let samples: Vec<_> = running
            .iter()
            .filter(|one| one.sm > 0)
            .map(sample)
            .collect();
        match samples.is_empty() {
            true => Err(nvmlReturn_enum_NVML_ERROR_NOT_FOUND),
            false => Ok(samples),
        }
    });
    unsafe { write::list(out, count, samples) }
}
