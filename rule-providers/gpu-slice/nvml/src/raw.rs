//! NVML calls that `nvml-wrapper` lacks or gets wrong, and the immediate exit of the process.
#![allow(unsafe_code)]

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, EventSet};

/// NVML's number for a GPU at the other end of an NVLink.
pub const REMOTE_GPU: u32 = 0;
/// NVML's number for a POWER processor at the other end of an NVLink.
pub const REMOTE_NPU: u32 = 1;

/// Returns whether remapping a row of memory failed.
pub fn row_remap_failed(device: &Device<'_>) -> Result<bool, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetRemappedRows.as_ref())?;
    let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
    // SAFETY: the handle lives as long as `device`; the call writes four integers.
    nvml_try(unsafe {
        call(
            device.handle(),
            &mut corrected,
            &mut uncorrected,
            &mut pending,
            &mut failed,
        )
    })?;
    Ok(failed != 0)
}

/// Returns the type of the device at the other end of a link.
pub fn remote_type(device: &Device<'_>, link: u32) -> Result<u32, NvmlError> {
    let library = device.nvml().lib();
    let call = nvml_sym(library.nvmlDeviceGetNvLinkRemoteDeviceType.as_ref())?;
    let mut remote = 0;
    // SAFETY: the handle lives as long as `device`; the call writes one integer.
    nvml_try(unsafe { call(device.handle(), link, &mut remote) })?;
    Ok(remote)
}

/// Returns the ID of a MIG device's GPU instance.
pub fn gpu_instance_id(mig: &Device<'_>) -> Result<u32, NvmlError> {
    let call = nvml_sym(mig.nvml().lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let mut id = 0;
    // SAFETY: the handle lives as long as `mig`; the call writes one integer.
    nvml_try(unsafe { call(mig.handle(), &mut id) })?;
    Ok(id)
}

/// Adds a device's events to the set, which stays valid if that fails.
pub fn register(device: &Device<'_>, set: &EventSet<'_>, events: u64) -> Result<(), NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceRegisterEvents.as_ref())?;
    // SAFETY: both handles live as long as their owners.
    nvml_try(unsafe { call(device.handle(), events, set.handle()) })
}

/// Returns whether both are the same device.
pub fn same(a: &Device<'_>, b: &Device<'_>) -> bool {
    // SAFETY: the handles are compared only.
    unsafe { a.handle() == b.handle() }
}

/// Ends the process at once: NVML's own clean-up would wait for a call that hangs.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: `_exit` takes any status and has no preconditions.
    unsafe { libc::_exit(status) }
}
