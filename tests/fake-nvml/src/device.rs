use std::ffi::{c_char, c_int, c_uint, c_ulong, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlAffinityScope_t, nvmlDevice_t, nvmlEnableState_t, nvmlGpuTopologyLevel_t,
    nvmlIntNvLinkDeviceType_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT, nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
    nvmlReturn_t, nvmlUtilization_t,
};

use crate::card::{link, pci, pci_numbers};
use crate::play::{instance, with_card};
use crate::scene::{Card, Scene};
use crate::{process, write};

/// Temperature in °C at which a card shuts down.
const SHUTDOWN: u32 = 92;
/// An NVSwitch.
const SWITCH: &str = "00000000:C0:00.0";

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(
    device: nvmlDevice_t,
    out: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    let uuid = with_card(device, |_, _, card| {
        Ok(instance(device, card).map_or_else(|| card.uuid.clone(), |found| found.uuid))
    });
    unsafe { write::text(out, length, uuid) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(
    device: nvmlDevice_t,
    out: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    let name = with_card(device, |_, _, card| {
        let mig = instance(device, card).map(|found| format!(" MIG {}", found.profile));
        Ok(card.product.clone() + &mig.unwrap_or_default())
    });
    unsafe { write::text(out, length, name) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetIndex(device: nvmlDevice_t, out: *mut c_uint) -> nvmlReturn_t {
    unsafe { write::value(out, with_card(device, |_, index, _| Ok(index as c_uint))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMinorNumber(
    device: nvmlDevice_t,
    out: *mut c_uint,
) -> nvmlReturn_t {
    let minor = with_card(device, |_, index, card| {
        Ok(card.minor.unwrap_or(index as u32))
    });
    unsafe { write::value(out, minor) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(
    device: nvmlDevice_t,
    out: *mut nvmlPciInfo_t,
) -> nvmlReturn_t {
    let info = with_card(device, |_, index, card| Ok(pci_info(&pci(card, index))));
    unsafe { write::value(out, info) }
}

fn pci_info(address: &str) -> nvmlPciInfo_t {
    let (domain, bus, device) = pci_numbers(address);
    nvmlPciInfo_t {
        busIdLegacy: write::array(address.strip_prefix("0000").unwrap_or(address)),
        domain,
        bus,
        device,
        pciDeviceId: 0x2330_10DE,
        pciSubSystemId: 0,
        busId: write::array(address),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: nvmlDevice_t,
    major: *mut c_int,
    minor: *mut c_int,
) -> nvmlReturn_t {
    let compute = with_card(device, |_, _, card| Ok(card.compute));
    match unsafe { write::value(major, compute.map(|compute| compute.0)) } {
        write::SUCCESS => unsafe { write::value(minor, compute.map(|compute| compute.1)) },
        error => error,
    }
}

/// Bytes in all and in use.
fn memory(scene: &Scene, index: usize, card: &Card) -> Result<(u64, u64), nvmlReturn_t> {
    let mib = card.memory_mib;
    let total = mib.ok_or(nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED)? << 20;
    let processes: u64 = process::on_card(scene, index, None)
        .iter()
        .map(|p| p.bytes)
        .sum();
    Ok((total, ((card.used_mib << 20) + processes).min(total)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(
    device: nvmlDevice_t,
    out: *mut nvmlMemory_t,
) -> nvmlReturn_t {
    let memory = with_card(device, |scene, index, card| {
        let (total, used) = memory(scene, index, card)?;
        Ok(nvmlMemory_t {
            total,
            free: total - used,
            used,
        })
    });
    unsafe { write::value(out, memory) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: nvmlDevice_t,
    out: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    let memory = with_card(device, |scene, index, card| {
        let (total, used) = memory(scene, index, card)?;
        let version = (size_of::<nvmlMemory_v2_t>() | (2 << 24)) as c_uint;
        Ok(nvmlMemory_v2_t {
            version,
            total,
            reserved: 0,
            free: total - used,
            used,
        })
    });
    unsafe { write::value(out, memory) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    device: nvmlDevice_t,
    out: *mut nvmlUtilization_t,
) -> nvmlReturn_t {
    let rates = with_card(device, |_, _, card| {
        Ok(nvmlUtilization_t {
            gpu: card.busy,
            memory: 0,
        })
    });
    unsafe { write::value(out, rates) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: nvmlDevice_t,
    _sensor: c_uint,
    out: *mut c_uint,
) -> nvmlReturn_t {
    unsafe { write::value(out, with_card(device, |_, _, card| Ok(card.temperature))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperatureThreshold(
    device: nvmlDevice_t,
    kind: c_uint,
    out: *mut c_uint,
) -> nvmlReturn_t {
    let threshold = with_card(device, |_, _, _| match kind {
        0 => Ok(SHUTDOWN),
        _ => Err(nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED),
    });
    unsafe { write::value(out, threshold) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryAffinity(
    device: nvmlDevice_t,
    size: c_uint,
    out: *mut c_ulong,
    _scope: nvmlAffinityScope_t,
) -> nvmlReturn_t {
    let node = with_card(device, |_, _, card| match card.numa {
        Some(node @ 0..64) if size > 0 => Ok(1 << node),
        _ => Err(nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED),
    });
    unsafe { write::value(out, node) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    a: nvmlDevice_t,
    b: nvmlDevice_t,
    out: *mut nvmlGpuTopologyLevel_t,
) -> nvmlReturn_t {
    let numa = |handle| with_card(handle, |_, _, card| Ok(card.numa));
    let level = numa(a).and_then(|a| Ok(if a == numa(b)? { 40 } else { 50 }));
    unsafe { write::value(out, level) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkState(
    device: nvmlDevice_t,
    index: c_uint,
    out: *mut nvmlEnableState_t,
) -> nvmlReturn_t {
    let state = with_card(device, |scene, _, card| match link(scene, card, index) {
        Some((up, _)) => Ok(up.into()),
        None if card.links.is_empty() => Err(nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED),
        None => Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT),
    });
    unsafe { write::value(out, state) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkRemoteDeviceType(
    device: nvmlDevice_t,
    index: c_uint,
    out: *mut nvmlIntNvLinkDeviceType_t,
) -> nvmlReturn_t {
    let kind = with_card(device, |scene, _, card| match link(scene, card, index) {
        Some((_, Some(_))) => Ok(0),
        Some((_, None)) => Ok(2),
        None => Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT),
    });
    unsafe { write::value(out, kind) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    device: nvmlDevice_t,
    index: c_uint,
    out: *mut nvmlPciInfo_t,
) -> nvmlReturn_t {
    let info = with_card(device, |scene, _, card| match link(scene, card, index) {
        Some((_, Some(to))) => Ok(pci_info(&pci(&scene.cards[to], to))),
        Some((_, None)) => Ok(pci_info(SWITCH)),
        None => Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT),
    });
    unsafe { write::value(out, info) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: nvmlDevice_t,
    kind: c_uint,
    _counter: c_uint,
    out: *mut c_ulonglong,
) -> nvmlReturn_t {
    let errors = with_card(device, |_, _, card| {
        Ok(u64::from(kind) * card.ecc_uncorrectable)
    });
    unsafe { write::value(out, errors) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetRetiredPagesPendingStatus(
    device: nvmlDevice_t,
    out: *mut nvmlEnableState_t,
) -> nvmlReturn_t {
    unsafe {
        write::value(
            out,
            with_card(device, |_, _, card| Ok(card.pages_pending.into())),
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetRemappedRows(
    device: nvmlDevice_t,
    corrected: *mut c_uint,
    uncorrected: *mut c_uint,
    pending: *mut c_uint,
    failed: *mut c_uint,
) -> nvmlReturn_t {
    let rows = with_card(device, |_, _, card| Ok(card.remap_failed.into()));
    for out in [corrected, uncorrected, pending] {
        unsafe { write::value(out, rows.map(|_| 0)) };
    }
    unsafe { write::value(failed, rows) }
}
