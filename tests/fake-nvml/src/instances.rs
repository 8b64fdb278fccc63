use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::scene::{Card, Instance, Scene};

/// Time, size and inode: two files of one tick of the clock have different inodes.
pub type Stamp = (SystemTime, u64, u64);

/// MIG instances that differ from those of the scene, by UUID of the card.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Changes(BTreeMap<String, Change>);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Change {
    /// What the scene's file has.
    scene: Vec<Instance>,
    now: Vec<Instance>,
}

pub fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

impl Changes {
    /// Beside the scene, or `$FAKE_NVML_STATE` where that folder cannot be written.
    pub fn path(scene: &Path) -> PathBuf {
        if let Some(path) = std::env::var_os("FAKE_NVML_STATE") {
            return path.into();
        }
        let mut name = OsString::from(scene);
        name.push(".mig");
        name.into()
    }

    /// None if there is no file.
    pub fn read(scene: &Path) -> Self {
        let text = fs::read_to_string(Self::path(scene)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub fn write(&self, scene: &Path) -> io::Result<()> {
        let path = Self::path(scene);
        let next = path.with_extension("mig-next");
        fs::write(&next, serde_json::to_string(self)?)?;
        fs::rename(next, path)
    }

    pub fn set(&mut self, card: &Card, now: Vec<Instance>) {
        let last = card.mig.clone().unwrap_or_default();
        let change = self.0.entry(card.uuid.clone()).or_default();
        // The scene's list was changed since, or nothing was.
        if change.now != last || change.scene.is_empty() && change.now.is_empty() {
            change.scene = last;
        }
        change.now = now;
    }

    /// Gives all instances ids, and changes those of cards whose list is the same as before.
    pub fn apply(&self, scene: &mut Scene) {
        for card in &mut scene.cards {
            let Some(instances) = &mut card.mig else {
                continue;
            };
            for (id, instance) in (1..).zip(instances.iter_mut()) {
                if instance.id == 0 {
                    instance.id = id;
                }
            }
            let change = self.0.get(&card.uuid);
            if let Some(change) = change.filter(|change| change.scene == *instances) {
                instances.clone_from(&change.now);
            }
        }
    }
}
