use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventMigConfigChange, nvmlEventTypeDoubleBitEccError,
    nvmlEventTypeXidCriticalError, nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED,
    nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST, nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
    nvmlReturn_t,
};

use crate::scene::{Card, Instance, Scene};

/// Events that wait at most.
const MAX_EVENTS: usize = 1024;
/// Time between two looks at the file in a call that hangs.
const TICK: Duration = Duration::from_millis(20);
/// Handles of MIG devices are 64 apart for each card.
const MIG: usize = 0x1_0000;

/// An event that was not delivered yet.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    pub card: usize,
    pub kind: u64,
    pub data: u64,
}

#[derive(Default)]
struct Play {
    stamp: Option<(SystemTime, u64, u64)>,
    scene: Option<Scene>,
    events: VecDeque<Pending>,
}

static PLAY: Mutex<Play> = Mutex::new(Play {
    stamp: None,
    scene: None,
    events: VecDeque::new(),
});

/// Runs `call` on the scene, once nothing hangs.
pub fn with_scene<T>(
    call: impl FnOnce(&Scene) -> Result<T, nvmlReturn_t>,
) -> Result<T, nvmlReturn_t> {
    let scene = scene(|scene| scene.hang)?;
    call(&scene)
}

/// Runs `call` on the card of a handle, once it does not hang.
pub fn with_card<T>(
    handle: nvmlDevice_t,
    call: impl FnOnce(&Scene, usize, &Card) -> Result<T, nvmlReturn_t>,
) -> Result<T, nvmlReturn_t> {
    let index = card_index(handle);
    let scene = scene(|scene| scene.hang || scene.cards.get(index).is_some_and(|card| card.hang))?;
    let card = scene
        .cards
        .get(index)
        .ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)?;
    if card.lost {
        return Err(nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST);
    }
    call(&scene, index, card)
}

/// The oldest event.
pub fn next_event() -> Result<Option<Pending>, nvmlReturn_t> {
    scene(|scene| scene.hang)?;
    Ok(lock().events.pop_front())
}

/// Handle of a card.
pub fn handle(index: usize) -> nvmlDevice_t {
    std::ptr::without_provenance_mut(index + 1)
}

/// Handle of a MIG device.
pub fn mig_handle(card: usize, instance: usize) -> nvmlDevice_t {
    std::ptr::without_provenance_mut(MIG + card * 64 + instance)
}

/// The MIG instance of a handle.
pub fn instance(handle: nvmlDevice_t, card: &Card) -> Option<(u32, Instance)> {
    let index = handle.addr().checked_sub(MIG)? % 64;
    let instance = card.mig.as_ref()?.get(index)?.clone();
    Some((u32::try_from(index).ok()? + 1, instance))
}

fn card_index(handle: nvmlDevice_t) -> usize {
    match handle.addr() {
        address @ MIG.. => (address - MIG) / 64,
        address => address.wrapping_sub(1),
    }
}

fn scene(hangs: impl Fn(&Scene) -> bool) -> Result<Scene, nvmlReturn_t> {
    loop {
        let mut play = lock();
        play.refresh();
        match &play.scene {
            None => return Err(nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED),
            Some(scene) if !hangs(scene) => return Ok(scene.clone()),
            Some(_) => {}
        }
        drop(play);
        thread::sleep(TICK);
    }
}

fn lock() -> std::sync::MutexGuard<'static, Play> {
    PLAY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Play {
    /// Reads the file if it changed; a file that is wrong changes nothing.
    fn refresh(&mut self) {
        let Some(path) = std::env::var_os("FAKE_NVML_FILE") else {
            return;
        };
        let Ok(metadata) = fs::metadata(&path) else {
            self.scene = None;
            self.stamp = None;
            return;
        };
        // Two files of one tick of the clock have different inodes.
        let stamp = metadata.modified().ok();
        let stamp = stamp.map(|time| (time, metadata.len(), metadata.ino()));
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        match serde_json::from_str::<Scene>(&text) {
            Ok(scene) => {
                if let Some(last) = &self.scene {
                    self.events.extend(changes(last, &scene));
                    self.events.truncate(MAX_EVENTS);
                }
                self.scene = Some(scene);
                self.stamp = stamp;
            }
            Err(error) => eprintln!("fake NVML: {}: {error}", path.to_string_lossy()),
        }
    }
}

/// Events between two scenes, by card index.
fn changes(last: &Scene, next: &Scene) -> Vec<Pending> {
    let mut events = Vec::new();
    for (card, (last, next)) in last.cards.iter().zip(&next.cards).enumerate() {
        let mut add = |kind: u32, data| {
            events.push(Pending {
                card,
                kind: kind.into(),
                data,
            })
        };
        for xid in next.xids.iter().skip(last.xids.len()) {
            add(nvmlEventTypeXidCriticalError, *xid);
        }
        if next.ecc_uncorrectable > last.ecc_uncorrectable {
            add(nvmlEventTypeDoubleBitEccError, 0);
        }
        if next.mig != last.mig {
            add(nvmlEventMigConfigChange, 0);
        }
    }
    events
}
