use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventMigConfigChange, nvmlEventTypeDoubleBitEccError,
    nvmlEventTypeXidCriticalError, nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED,
    nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST, nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED, nvmlReturn_enum_NVML_ERROR_UNKNOWN, nvmlReturn_t,
};

use crate::instances::{Changes, Stamp, stamp};
use crate::scene::{Card, Instance, Scene};

/// Events that wait at most.
const MAX_EVENTS: usize = 1024;
/// Time between two looks at the file in a call that hangs.
const TICK: Duration = Duration::from_millis(20);
/// Handles of GPU instances and their devices are 64 apart for each card.
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
    /// Of the scene's file and the one of MIG instances.
    stamps: Option<[Option<Stamp>; 2]>,
    scene: Option<Scene>,
    events: VecDeque<Pending>,
}

static PLAY: Mutex<Play> = Mutex::new(Play {
    stamps: None,
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

/// Handle of a GPU instance and of its MIG device.
pub fn mig_handle(card: usize, instance: u32) -> nvmlDevice_t {
    std::ptr::without_provenance_mut(MIG + card * 64 + instance as usize % 64)
}

/// The MIG instance of a handle.
pub fn instance(handle: nvmlDevice_t, card: &Card) -> Option<Instance> {
    let id = handle.addr().checked_sub(MIG)? % 64;
    let mut all = card.mig.iter().flatten();
    all.find(|one| one.id as usize == id).cloned()
}

/// Changes the MIG instances of a handle's card, once it does not hang.
pub fn change<T>(
    handle: nvmlDevice_t,
    change: impl FnOnce(&Scene, usize, &mut Vec<Instance>) -> Result<T, nvmlReturn_t>,
) -> Result<T, nvmlReturn_t> {
    let (scene, index) = with_card(handle, |scene, index, _| Ok((scene.clone(), index)))?;
    let mut now = scene.cards[index].mig.clone();
    let of_card = now
        .as_mut()
        .ok_or(nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED)?;
    let value = change(&scene, index, of_card)?;
    let path = std::env::var_os("FAKE_NVML_FILE").unwrap_or_default();
    let mut changes = Changes::read(Path::new(&path));
    changes.set(&scene.cards[index], now.unwrap_or_default());
    match changes.write(Path::new(&path)) {
        Ok(()) => Ok(value),
        Err(error) => {
            eprintln!("fake NVML: {}: {error}", path.to_string_lossy());
            Err(nvmlReturn_enum_NVML_ERROR_UNKNOWN)
        }
    }
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
        let path = Path::new(&path);
        if !path.exists() {
            self.scene = None;
            self.stamps = None;
            return;
        }
        let stamps = [stamp(path), stamp(&Changes::path(path))];
        if self.stamps == Some(stamps) {
            return;
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        match serde_json::from_str::<Scene>(&text) {
            Ok(mut scene) => {
                Changes::read(path).apply(&mut scene);
                if let Some(last) = &self.scene {
                    self.events.extend(changes(last, &scene));
                    self.events.truncate(MAX_EVENTS);
                }
                self.scene = Some(scene);
                self.stamps = Some(stamps);
            }
            Err(error) => eprintln!("fake NVML: {}: {error}", path.display()),
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
