use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT, nvmlReturn_enum_NVML_ERROR_NOT_FOUND,
    nvmlReturn_t,
};

use crate::play::{instance, mig_handle, with_card};
use crate::write;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    let mode = with_card(device, |_, _, card| Ok(card.mig.is_some().into()));
    match unsafe { write::value(current, mode) } {
        write::SUCCESS => unsafe { write::value(pending, mode) },
        error => error,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(
    device: nvmlDevice_t,
    out: *mut c_uint,
) -> nvmlReturn_t {
    unsafe { write::value(out, with_card(device, |_, _, _| Ok(7))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: nvmlDevice_t,
    index: c_uint,
    out: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    let index = index as usize;
    let found = with_card(device, |_, card_index, card| {
        match card.mig.as_ref().and_then(|instances| instances.get(index)) {
            Some(_) => Ok(mig_handle(card_index, index)),
            None => Err(nvmlReturn_enum_NVML_ERROR_NOT_FOUND),
        }
    });
    unsafe { write::value(out, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(
    device: nvmlDevice_t,
    out: *mut c_uint,
) -> nvmlReturn_t {
    let id = with_card(device, |_, _, card| {
        let found = instance(device, card).map(|(id, _)| id);
        found.ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)
    });
    unsafe { write::value(out, id) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeInstanceId(
    device: nvmlDevice_t,
    out: *mut c_uint,
) -> nvmlReturn_t {
    unsafe { write::value(out, with_card(device, |_, _, _| Ok(0))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceById(
    device: nvmlDevice_t,
    id: c_uint,
    out: *mut nvmlGpuInstance_t,
) -> nvmlReturn_t {
    let found = with_card(device, |_, card_index, card| {
        let index = (id as usize).wrapping_sub(1);
        match card.mig.as_ref().and_then(|instances| instances.get(index)) {
            Some(_) => Ok(mig_handle(card_index, index).cast()),
            None => Err(nvmlReturn_enum_NVML_ERROR_NOT_FOUND),
        }
    });
    unsafe { write::value(out, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceGetInfo(
    handle: nvmlGpuInstance_t,
    out: *mut nvmlGpuInstanceInfo_t,
) -> nvmlReturn_t {
    let device: nvmlDevice_t = handle.cast();
    let info = with_card(device, |_, card_index, card| {
        let (id, found) =
            instance(device, card).ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)?;
        Ok(nvmlGpuInstanceInfo_t {
            device: crate::play::handle(card_index),
            id,
            profileId: 0,
            placement: nvmlGpuInstancePlacement_t {
                start: found.start,
                size: 1,
            },
        })
    });
    unsafe { write::value(out, info) }
}
