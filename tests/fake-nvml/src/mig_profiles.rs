use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE,
    NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE, NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE,
    NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE, NVML_GPU_INSTANCE_PROFILE_1_SLICE,
    NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1, NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2,
    NVML_GPU_INSTANCE_PROFILE_2_SLICE, NVML_GPU_INSTANCE_PROFILE_3_SLICE,
    NVML_GPU_INSTANCE_PROFILE_4_SLICE, NVML_GPU_INSTANCE_PROFILE_7_SLICE,
    nvmlComputeInstanceProfileInfo_t, nvmlDevice_t, nvmlGpuInstance_t, nvmlGpuInstancePlacement_t,
    nvmlGpuInstanceProfileInfo_v2_t, nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED, nvmlReturn_t,
};

use crate::play::{instance, with_card};
use crate::write;

/// A profile of an H100 with 80 GB.
pub struct Profile {
    kind: u32,
    pub id: u32,
    pub name: &'static str,
    pub compute: u32,
    pub size: u32,
    pub starts: &'static [u32],
    memory_mb: u64,
}

const fn profile(
    (kind, id): (u32, u32),
    name: &'static str,
    (compute, size): (u32, u32),
    starts: &'static [u32],
    memory_mb: u64,
) -> Profile {
    Profile {
        kind,
        id,
        name,
        compute,
        size,
        starts,
        memory_mb,
    }
}

const EACH: &[u32] = &[0, 1, 2, 3, 4, 5, 6];
const PROFILES: [Profile; 7] = [
    profile(
        (NVML_GPU_INSTANCE_PROFILE_1_SLICE, 19),
        "1g.10gb",
        (1, 1),
        EACH,
        9856,
    ),
    profile(
        (NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1, 20),
        "1g.10gb+me",
        (1, 1),
        EACH,
        9856,
    ),
    profile(
        (NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2, 15),
        "1g.20gb",
        (1, 2),
        &[0, 2, 4, 6],
        20096,
    ),
    profile(
        (NVML_GPU_INSTANCE_PROFILE_2_SLICE, 14),
        "2g.20gb",
        (2, 2),
        &[0, 2, 4],
        20096,
    ),
    profile(
        (NVML_GPU_INSTANCE_PROFILE_3_SLICE, 9),
        "3g.40gb",
        (3, 4),
        &[0, 4],
        40448,
    ),
    profile(
        (NVML_GPU_INSTANCE_PROFILE_4_SLICE, 5),
        "4g.40gb",
        (4, 4),
        &[0],
        40448,
    ),
    profile(
        (NVML_GPU_INSTANCE_PROFILE_7_SLICE, 0),
        "7g.80gb",
        (7, 8),
        &[0],
        81024,
    ),
];
/// Kinds of compute instances and their compute slices.
const COMPUTE: [(u32, u32); 5] = [
    (NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, 1),
    (NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE, 2),
    (NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE, 3),
    (NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE, 4),
    (NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE, 7),
];

/// The profile with a name.
pub fn named(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

/// The profile with an id of NVML.
pub fn by_id(id: u32) -> Result<&'static Profile, nvmlReturn_t> {
    let found = PROFILES.iter().find(|profile| profile.id == id);
    found.ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceProfileInfoV(
    device: nvmlDevice_t,
    kind: c_uint,
    out: *mut nvmlGpuInstanceProfileInfo_v2_t,
) -> nvmlReturn_t {
    let version = (size_of::<nvmlGpuInstanceProfileInfo_v2_t>() | 2 << 24) as c_uint;
    if out.is_null() || unsafe { (*out).version } != version {
        return nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
    }
    let info = with_card(device, |_, _, _| {
        let found = PROFILES.iter().find(|profile| profile.kind == kind);
        let profile = found.ok_or(nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED)?;
        Ok(nvmlGpuInstanceProfileInfo_v2_t {
            version,
            id: profile.id,
            isP2pSupported: 0,
            sliceCount: profile.compute,
            instanceCount: profile.starts.len() as c_uint,
            multiprocessorCount: profile.compute * 16,
            copyEngineCount: profile.compute,
            decoderCount: profile.compute,
            encoderCount: 0,
            jpegCount: profile.compute,
            ofaCount: 0,
            memorySizeMB: profile.memory_mb,
            name: write::array(&format!("MIG {}", profile.name)),
        })
    });
    unsafe { write::value(out, info) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    device: nvmlDevice_t,
    profile: c_uint,
    out: *mut nvmlGpuInstancePlacement_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    let places = with_card(device, |_, _, card| {
        if card.mig.is_none() {
            return Err(nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED);
        }
        let profile = by_id(profile)?;
        let place = |start: &u32| nvmlGpuInstancePlacement_t {
            start: *start,
            size: profile.size,
        };
        Ok(profile.starts.iter().map(place).collect())
    });
    unsafe { write::list(out, count, places) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
    handle: nvmlGpuInstance_t,
    kind: c_uint,
    _engines: c_uint,
    out: *mut nvmlComputeInstanceProfileInfo_t,
) -> nvmlReturn_t {
    let device: nvmlDevice_t = handle.cast();
    let info = with_card(device, |_, _, card| {
        let of = instance(device, card).ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)?;
        let most = named(&of.profile).map_or(0, |profile| profile.compute);
        let slices = COMPUTE.iter().find(|(known, _)| *known == kind);
        let slices = slices.map(|(_, slices)| *slices);
        let slices = slices.filter(|slices| *slices <= most);
        let slices = slices.ok_or(nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED)?;
        Ok(nvmlComputeInstanceProfileInfo_t {
            id: kind,
            sliceCount: slices,
            instanceCount: most / slices,
            multiprocessorCount: slices * 16,
            sharedCopyEngineCount: 1,
            sharedDecoderCount: 1,
            sharedEncoderCount: 0,
            sharedJpegCount: 1,
            sharedOfaCount: 0,
        })
    });
    unsafe { write::value(out, info) }
}
