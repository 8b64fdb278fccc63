//! Lists the MIG profiles and MIG instances of a card, and makes and destroys instances.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use tautline_nvml::{Action, MigDestroy, MigInstance, MigProfile, MigSlot, Outcome};

use crate::raw;
use crate::raw_mig::{self, GpuInstance, Profile};

/// Returns the profiles without attributes of a card in MIG mode, which do not change.
pub fn profiles(device: &Device<'_>) -> Result<Vec<MigProfile>, NvmlError> {
    let plain = raw_mig::profiles(device)?.into_iter().filter(|p| p.plain);
    let mut profiles = Vec::new();
    for profile in plain {
        let places = raw_mig::places(device, profile.id)?;
        let Some((_, size)) = places.first().copied() else {
            continue;
        };
        let mut starts: Vec<u32> = places.iter().map(|(start, _)| *start).collect();
        starts.sort_unstable();
        profiles.push(MigProfile {
            name: profile.name,
            size,
            compute: profile.compute,
            starts,
        });
    }
    profiles.sort_by_key(|p| (p.size, p.compute));
    Ok(profiles)
}

/// Returns the GPU instances of a card, with one entry for each compute instance. A GPU instance
/// without one has an entry with an empty UUID.
pub fn instances(device: &Device<'_>) -> Result<Vec<MigInstance>, NvmlError> {
    let mut uuids: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for index in 0..device.mig_device_count()? {
        let Ok(mig) = device.mig_device_by_index(index) else {
            continue;
        };
        let gpu = raw::gpu_instance_id(&mig)?;
        uuids.entry(gpu).or_default().push(mig.uuid()?);
    }
    let mut all = Vec::new();
    for (profile, gpu) in gpu_instances(device)? {
        let of_gpu = uuids.remove(&gpu.id);
        for uuid in of_gpu.unwrap_or_else(|| vec![String::new()]) {
            all.push(MigInstance {
                uuid,
                profile: profile.name.clone(),
                start: gpu.start,
                size: gpu.size,
                compute: profile.compute,
                gpu_instance: gpu.id,
            });
        }
    }
    all.sort_by_key(|one| (one.start, one.gpu_instance));
    Ok(all)
}

fn gpu_instances(device: &Device<'_>) -> Result<Vec<(Profile, GpuInstance)>, NvmlError> {
    let mut all = Vec::new();
    for profile in raw_mig::profiles(device)? {
        let found = raw_mig::gpu_instances(device, profile.id)?;
        all.extend(found.into_iter().map(|gpu| (profile.clone(), gpu)));
    }
    Ok(all)
}

/// Runs a command of the agent, and returns its outcome.
pub fn act(nvml: &Nvml, action: &Action) -> Outcome {
    let done = match action {
        Action::Create(create) => self::create(nvml, create).map(Outcome::Instance),
        Action::Destroy(destroy) => self::destroy(nvml, destroy).map(Outcome::Destroyed),
    };
    done.unwrap_or_else(|error| Outcome::Error(error.to_string()))
}

/// Makes an instance, unless it exists.
fn create(nvml: &Nvml, slot: &MigSlot) -> anyhow::Result<MigInstance> {
    let failed = |error: NvmlError| anyhow!("{slot}: {error}");
    let device = nvml.device_by_uuid(&*slot.card).map_err(failed)?;
    let there = gpu_instances(&device).map_err(failed)?;
    let same = |(profile, gpu): &&(Profile, GpuInstance)| {
        profile.name == slot.profile && gpu.start == slot.start
    };
    let (gpu, new) = match there.iter().find(same) {
        Some((_, gpu)) => (*gpu, false),
        None => (create_gpu(&device, slot).map_err(failed)?, true),
    };
    let find = || -> Result<Option<MigInstance>, NvmlError> {
        let mut all = instances(&device)?.into_iter();
        Ok(all.find(|one| one.gpu_instance == gpu.id && !one.uuid.is_empty()))
    };
    let made = find().and_then(|found| match found {
        None => raw_mig::create_compute(&device, &gpu).and_then(|()| find()),
        found => Ok(found),
    });
    let why = match made {
        Ok(Some(made)) => return Ok(made),
        Ok(None) => "it has no device".to_owned(),
        Err(error) => error.to_string(),
    };
    if new && let Err(error) = raw_mig::destroy(&device, &gpu) {
        eprintln!("{slot} stays without use: {error}");
    }
    bail!("{slot}: no compute instance: {why}")
}

fn create_gpu(device: &Device<'_>, slot: &MigSlot) -> Result<GpuInstance, NvmlError> {
    let profiles = raw_mig::profiles(device)?;
    let profile = profiles.iter().find(|profile| profile.name == slot.profile);
    let profile = profile.ok_or(NvmlError::NotFound)?;
    let places = raw_mig::places(device, profile.id)?;
    let place = places.into_iter().find(|(start, _)| *start == slot.start);
    raw_mig::create(device, profile.id, place.ok_or(NvmlError::InvalidArg)?)
}

/// Destroys an instance that no process uses. An instance that no longer exists is not an error.
fn destroy(nvml: &Nvml, of: &MigDestroy) -> anyhow::Result<u32> {
    let slot = &of.slot;
    let failed = |error: NvmlError| anyhow!("{slot}: {error}");
    let device = nvml.device_by_uuid(&*slot.card).map_err(failed)?;
    let there = gpu_instances(&device).map_err(failed)?;
    let meant = there.iter().find(|(profile, gpu)| {
        gpu.id == of.gpu_instance && profile.name == slot.profile && gpu.start == slot.start
    });
    let Some((_, gpu)) = meant else {
        return Ok(of.gpu_instance);
    };
    let compute = device.running_compute_processes().map_err(failed)?;
    let graphics = device.running_graphics_processes().map_err(failed)?;
    // A process whose instance NVML does not report may use this one.
    let uses = |p: &&ProcessInfo| p.gpu_instance_id.is_none_or(|id| id == gpu.id);
    if let Some(process) = compute.iter().chain(&graphics).find(uses) {
        let memory = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => format!(" with {} MiB", bytes >> 20),
            UsedGpuMemory::Unavailable => String::new(),
        };
        bail!("{slot} is in use by process {}{memory}", process.pid);
    }
    raw_mig::destroy(&device, gpu).map_err(failed)?;
    Ok(gpu.id)
}
