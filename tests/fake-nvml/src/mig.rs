use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlDevice_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t, nvmlReturn_enum_NVML_ERROR_IN_USE,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES, nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND, nvmlReturn_t,
};

use crate::mig_profiles::{Profile, by_id, named};
use crate::play::{change, instance, mig_handle, with_card};
use crate::scene::{Card, Instance};
use crate::{process, write};

/// Most compute slices of a card.
const COMPUTE: u32 = 7;

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

/// The instance of a handle.
fn found(handle: nvmlDevice_t, card: &Card) -> Result<Instance, nvmlReturn_t> {
    instance(handle, card).ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: nvmlDevice_t,
    index: c_uint,
    out: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    let handle = with_card(device, |_, card_index, card| {
        let mut whole = card.mig.iter().flatten().filter(|one| !one.bare);
        let found = whole.nth(index as usize);
        let found = found.ok_or(nvmlReturn_enum_NVML_ERROR_NOT_FOUND)?;
        Ok(mig_handle(card_index, found.id))
    });
    unsafe { write::value(out, handle) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(
    device: nvmlDevice_t,
    out: *mut c_uint,
) -> nvmlReturn_t {
    let id = with_card(device, |_, _, card| Ok(found(device, card)?.id));
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
unsafe extern "C" fn nvmlDeviceGetGpuInstances(
    device: nvmlDevice_t,
    profile: c_uint,
    out: *mut nvmlGpuInstance_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    let handles = with_card(device, |_, index, card| {
        let profile = by_id(profile)?;
        let all = card.mig.iter().flatten();
        let of = all.filter(|one| one.profile == profile.name);
        Ok(of.map(|one| mig_handle(index, one.id).cast()).collect())
    });
    unsafe { write::list(out, count, handles) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceGetInfo(
    handle: nvmlGpuInstance_t,
    out: *mut nvmlGpuInstanceInfo_t,
) -> nvmlReturn_t {
    let device: nvmlDevice_t = handle.cast();
    let info = with_card(device, |_, card_index, card| {
        let found = found(device, card)?;
        let profile = named(&found.profile);
        Ok(nvmlGpuInstanceInfo_t {
            device: crate::play::handle(card_index),
            id: found.id,
            profileId: profile.map_or(u32::MAX, |profile| profile.id),
            placement: nvmlGpuInstancePlacement_t {
                start: found.start,
                size: profile.map_or(1, |profile| profile.size),
            },
        })
    });
    unsafe { write::value(out, info) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceCreateGpuInstanceWithPlacement(
    device: nvmlDevice_t,
    profile: c_uint,
    place: *const nvmlGpuInstancePlacement_t,
    out: *mut nvmlGpuInstance_t,
) -> nvmlReturn_t {
    let place = unsafe { *place };
    let handle = change(device, |_, index, instances| {
        let profile = by_id(profile)?;
        if place.size != profile.size || !profile.starts.contains(&place.start) {
            return Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
        }
        if !has_room(instances, profile, place.start) {
            return Err(nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES);
        }
        let mut ids = 1..64;
        let id = ids.find(|id| instances.iter().all(|one| one.id != *id));
        let id = id.ok_or(nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES)?;
        instances.push(Instance {
            uuid: format!("MIG-{index:08}-0000-0000-0000-{id:012}"),
            profile: profile.name.to_owned(),
            start: place.start,
            id,
            bare: true,
        });
        Ok(mig_handle(index, id).cast())
    });
    unsafe { write::value(out, handle) }
}

fn has_room(instances: &[Instance], profile: &Profile, start: u32) -> bool {
    let others = || {
        let all = instances.iter();
        all.filter_map(|one| Some((one.start, named(&one.profile)?)))
    };
    let compute: u32 = others().map(|(_, other)| other.compute).sum();
    let meets = |(at, other): (u32, &Profile)| at < start + profile.size && start < at + other.size;
    compute + profile.compute <= COMPUTE && !others().any(meets)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceCreateComputeInstance(
    handle: nvmlGpuInstance_t,
    _profile: c_uint,
    out: *mut nvmlComputeInstance_t,
) -> nvmlReturn_t {
    let device: nvmlDevice_t = handle.cast();
    unsafe { write::value(out, set_bare(device, false).map(|()| handle.cast())) }
}

/// A compute instance has its GPU instance's handle.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceGetComputeInstances(
    handle: nvmlGpuInstance_t,
    profile: c_uint,
    out: *mut nvmlComputeInstance_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    let device: nvmlDevice_t = handle.cast();
    let handles = with_card(device, |_, _, card| {
        let found = found(device, card)?;
        // It is listed with the profile of one slice.
        let listed = !found.bare && profile == 0;
        Ok(listed.then(|| handle.cast()).into_iter().collect())
    });
    unsafe { write::list(out, count, handles) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlComputeInstanceDestroy(handle: nvmlComputeInstance_t) -> nvmlReturn_t {
    match set_bare(handle.cast(), true) {
        Ok(()) => write::SUCCESS,
        Err(error) => error,
    }
}

fn set_bare(device: nvmlDevice_t, bare: bool) -> Result<(), nvmlReturn_t> {
    let id = with_card(device, |_, _, card| Ok(found(device, card)?.id))?;
    change(device, |scene, index, instances| {
        let mut running = process::on_card(scene, index, None).into_iter();
        if bare && running.any(|one| one.instance == Some(id)) {
            return Err(nvmlReturn_enum_NVML_ERROR_IN_USE);
        }
        for one in instances.iter_mut().filter(|one| one.id == id) {
            one.bare = bare;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceDestroy(handle: nvmlGpuInstance_t) -> nvmlReturn_t {
    let device: nvmlDevice_t = handle.cast();
    let destroyed = with_card(device, |_, _, card| found(device, card)).and_then(|found| {
        change(device, |_, _, instances| match found.bare {
            false => Err(nvmlReturn_enum_NVML_ERROR_IN_USE),
            true => {
                instances.retain(|one| one.id != found.id);
                Ok(())
            }
        })
    });
    match destroyed {
        Ok(()) => write::SUCCESS,
        Err(error) => error,
    }
}
