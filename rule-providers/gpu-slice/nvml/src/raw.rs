//! NVML calls that `nvml-wrapper` lacks or gets wrong, and the immediate exit of the process.
#![allow(unsafe_code)]

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, EventSet};

/// NVML's number for a GPU at the other end of an NVLink.
pub const REMOTE_GPU: u32 = 0;
/// NVML's number for a POWER processor at the other end of an NVLink.
pub const REMOTE_NPU: u32 = 1;
/// NVML's number for an unknown device at the other end of an NVLink.
pub const REMOTE_UNKNOWN: u32 = 255;

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
    let call = nvml_sym(
        device
            .nvml()
            .lib()
            .nvmlDeviceGetNvLinkRemoteDeviceType
            .as_ref(),
    )?;
    let mut remote = REMOTE_UNKNOWN;
    // SAFETY: the handle lives as long as `device`; the call writes one integer.
    nvml_try(unsafe { call(device.handle(), link, &mut remote) })?;
    Ok(remote)
}

/// Returns the IDs of a MIG device's GPU instance and compute instance.
pub fn mig_ids(mig: &Device<'_>) -> Result<(u32, u32), NvmlError> {
    let library = mig.nvml().lib();
    let gpu_call = nvml_sym(library.nvmlDeviceGetGpuInstanceId.as_ref())?;
    let compute_call = nvml_sym(library.nvmlDeviceGetComputeInstanceId.as_ref())?;
    let (mut gpu, mut compute) = (0, 0);
    // SAFETY: the handle lives as long as `mig`; each call writes one integer.
    unsafe {
        nvml_try(gpu_call(mig.handle(), &mut gpu))?;
        nvml_try(compute_call(mig.handle(), &mut compute))?;
    }
    Ok((gpu, compute))
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
