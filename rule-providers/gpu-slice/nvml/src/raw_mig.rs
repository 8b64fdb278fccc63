//! NVML's calls for MIG, which `nvml-wrapper` lacks.
#![allow(unsafe_code)]

use std::ffi::CStr;

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, NVML_COMPUTE_INSTANCE_PROFILE_COUNT,
    nvmlComputeInstance_t, nvmlComputeInstanceProfileInfo_t, nvmlGpuInstance_t,
    nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_v2_t,
    nvmlReturn_t,
};

/// The number of kinds of profiles that are tried; newer drivers have more kinds than the bindings
/// know.
const PROFILE_KINDS: u32 = 32;
/// The largest number of GPU or compute instances of one profile.
const MAX_INSTANCES: usize = 16;
/// The largest number of places of a profile.
const MAX_PLACES: u32 = 32;

/// A size of GPU instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The ID that NVML gives the profile.
    pub id: u32,
    /// The name, such as `2g.20gb`.
    pub name: String,
    /// The number of compute slices.
    pub compute: u32,
    /// True if the profile has no media or graphics attributes, which its name would have, such as
    /// `+me`: an instance has all engines that belong to its slices.
    pub plain: bool,
}

/// A GPU instance and its handle, which is valid until the instance is destroyed.
#[derive(Clone, Copy, Debug)]
pub struct GpuInstance {
    handle: nvmlGpuInstance_t,
    pub id: u32,
    /// The first memory slice.
    pub start: u32,
    /// The number of memory slices.
    pub size: u32,
}

/// Returns the profiles that the card has.
pub fn profiles(device: &Device<'_>) -> Result<Vec<Profile>, NvmlError> {
    let library = device.nvml().lib();
    let call = nvml_sym(library.nvmlDeviceGetGpuInstanceProfileInfoV.as_ref())?;
    let mut profiles = Vec::new();
    for kind in 0..PROFILE_KINDS {
        // SAFETY: zeroes are a value of the struct's integers and characters.
        let mut info: nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
        info.version = (size_of::<nvmlGpuInstanceProfileInfo_v2_t>() | 2 << 24) as u32;
        // SAFETY: the handle lives as long as `device`; the call fills the struct, whose version is
        // set.
        match nvml_try(unsafe { call(device.handle(), kind, &mut info) }) {
            Ok(()) => {}
            Err(NvmlError::NotSupported | NvmlError::InvalidArg) => continue,
            Err(error) => return Err(error),
        }
        info.name[info.name.len() - 1] = 0;
        // SAFETY: the array ends with a zero.
        let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
        let name = name.to_string_lossy();
        profiles.push(Profile {
            id: info.id,
            name: name.strip_prefix("MIG ").unwrap_or(&name).to_owned(),
            compute: info.sliceCount,
            plain: !name.contains(['+', '-']),
        });
    }
    Ok(profiles)
}

/// Returns the first memory slice and the number of memory slices of each place where an instance
/// of a profile can be, whether the place is free or not.
pub fn places(device: &Device<'_>, profile: u32) -> Result<Vec<(u32, u32)>, NvmlError> {
    let library = device.nvml().lib();
    let call = nvml_sym(
        library
            .nvmlDeviceGetGpuInstancePossiblePlacements_v2
            .as_ref(),
    )?;
    let empty = nvmlGpuInstancePlacement_t { start: 0, size: 0 };
    let mut places = vec![empty; MAX_PLACES as usize];
    let mut count = MAX_PLACES;
    // SAFETY: the handle lives as long as `device`; the call writes `count` places at most.
    nvml_try(unsafe { call(device.handle(), profile, places.as_mut_ptr(), &mut count) })?;
    places.truncate(count as usize);
    Ok(places.iter().map(|p| (p.start, p.size)).collect())
}

/// Returns the GPU instances of a profile.
pub fn gpu_instances(device: &Device<'_>, profile: u32) -> Result<Vec<GpuInstance>, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuInstances.as_ref())?;
    // SAFETY: the handle lives as long as `device`.
    let handles = handles(|list, count| unsafe { call(device.handle(), profile, list, count) })?;
    let info = |handle| gpu_instance(device, handle);
    handles.into_iter().map(info).collect()
}

/// Returns the handles that a call lists; it writes as many as a profile can have instances, of
/// which no card has more than the list has room for.
fn handles<T>(
    list: impl FnOnce(*mut *mut T, *mut u32) -> nvmlReturn_t,
) -> Result<Vec<*mut T>, NvmlError> {
    let mut handles = vec![std::ptr::null_mut(); MAX_INSTANCES];
    let mut count = MAX_INSTANCES as u32;
    nvml_try(list(handles.as_mut_ptr(), &mut count))?;
    handles.truncate(count as usize);
    Ok(handles)
}

fn gpu_instance(device: &Device<'_>, handle: nvmlGpuInstance_t) -> Result<GpuInstance, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlGpuInstanceGetInfo.as_ref())?;
    // SAFETY: NVML has given the handle, and zeroes are a value of the struct's integers and
    // pointer.
    let info = unsafe {
        let mut info: nvmlGpuInstanceInfo_t = std::mem::zeroed();
        nvml_try(call(handle, &mut info))?;
        info
    };
    Ok(GpuInstance {
        handle,
        id: info.id,
        start: info.placement.start,
        size: info.placement.size,
    })
}

/// Makes a GPU instance at a place.
pub fn create(
    device: &Device<'_>,
    profile: u32,
    (start, size): (u32, u32),
) -> Result<GpuInstance, NvmlError> {
    let library = device.nvml().lib();
    let call = nvml_sym(library.nvmlDeviceCreateGpuInstanceWithPlacement.as_ref())?;
    let place = nvmlGpuInstancePlacement_t { start, size };
    let mut handle: nvmlGpuInstance_t = std::ptr::null_mut();
    // SAFETY: the handle lives as long as `device`; the call reads the place and writes a handle.
    nvml_try(unsafe { call(device.handle(), profile, &place, &mut handle) })?;
    gpu_instance(device, handle)
}

/// Makes a compute instance over all of a GPU instance.
pub fn create_compute(device: &Device<'_>, of: &GpuInstance) -> Result<(), NvmlError> {
    let library = device.nvml().lib();
    let call = nvml_sym(library.nvmlGpuInstanceCreateComputeInstance.as_ref())?;
    let all = compute_profiles(device, of)?;
    // The first of several with the same size.
    let largest = all.into_iter().rev().max_by_key(|(_, slices)| *slices);
    let (profile, _) = largest.ok_or(NvmlError::NotFound)?;
    let mut handle: nvmlComputeInstance_t = std::ptr::null_mut();
    // SAFETY: NVML has given the instance's handle; the call writes a handle.
    nvml_try(unsafe { call(of.handle, profile, &mut handle) })
}

/// Destroys a GPU instance with its compute instances. NVML refuses to destroy instances that
/// processes use.
pub fn destroy(device: &Device<'_>, of: &GpuInstance) -> Result<(), NvmlError> {
    let library = device.nvml().lib();
    let list = nvml_sym(library.nvmlGpuInstanceGetComputeInstances.as_ref())?;
    let destroy_compute = nvml_sym(library.nvmlComputeInstanceDestroy.as_ref())?;
    let destroy = nvml_sym(library.nvmlGpuInstanceDestroy.as_ref())?;
    for (profile, _) in compute_profiles(device, of)? {
        // SAFETY: NVML has given the instance's handle.
        let handles = handles(|all, count| unsafe { list(of.handle, profile, all, count) })?;
        for handle in handles {
            // SAFETY: NVML has just given the handle.
            nvml_try(unsafe { destroy_compute(handle) })?;
        }
    }
    // SAFETY: NVML has given the handle, which is not used after this call.
    nvml_try(unsafe { destroy(of.handle) })
}

/// Returns the ID and the number of compute slices of each compute instance profile of a GPU
/// instance.
fn compute_profiles(device: &Device<'_>, of: &GpuInstance) -> Result<Vec<(u32, u32)>, NvmlError> {
    let library = device.nvml().lib();
    let call = nvml_sym(
        library
            .nvmlGpuInstanceGetComputeInstanceProfileInfo
            .as_ref(),
    )?;
    let mut profiles = Vec::new();
    for kind in 0..NVML_COMPUTE_INSTANCE_PROFILE_COUNT {
        // SAFETY: zeroes are a value of the struct's integers.
        let mut info: nvmlComputeInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
        let engines = NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED;
        // SAFETY: NVML has given the instance's handle; the call fills the struct.
        match nvml_try(unsafe { call(of.handle, kind, engines, &mut info) }) {
            Ok(()) => profiles.push((info.id, info.sliceCount)),
            Err(NvmlError::NotSupported | NvmlError::InvalidArg) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(profiles)
}
