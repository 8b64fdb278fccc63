//! The list of the MIG instances that the agent has made.

use std::{collections::BTreeSet, fs, io, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};
use tautline_nvml::MigInstance;

/// A MIG instance, identified by its place on a card.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OwnInstance {
    /// The UUID of the card.
    pub card: String,
    /// The profile, such as `2g.20gb`.
    pub profile: String,
    /// The first memory slice.
    pub start: u32,
}

/// All MIG instances that the agent has made.
pub(crate) type OwnInstances = Arc<BTreeSet<OwnInstance>>;

impl OwnInstance {
    pub fn of(card: &str, instance: &MigInstance) -> Self {
        Self {
            card: card.to_owned(),
            profile: instance.profile.clone(),
            start: instance.start,
        }
    }
}

/// The file with the list. Like MIG instances, it does not outlive a reboot.
pub(super) struct OwnFile(pub PathBuf);

impl OwnFile {
    /// Reads the list. If the file is missing or cannot be read, the list is empty, so all
    /// instances count as the administrator's.
    pub fn read(&self) -> BTreeSet<OwnInstance> {
        let read = fs::read(&self.0).and_then(|text| Ok(serde_json::from_slice(&text)?));
        read.unwrap_or_else(|error: io::Error| {
            if error.kind() != io::ErrorKind::NotFound {
                let path = self.0.display();
                tracing::warn!(%path, %error, "MIG instances of an earlier agent are not destroyed");
            }
            BTreeSet::new()
        })
    }

    /// # Errors
    /// The text names the file and the reason why it was not written.
    pub fn write(&self, own: &BTreeSet<OwnInstance>) -> Result<(), String> {
        let write = || -> io::Result<()> {
            if let Some(folder) = self.0.parent() {
                fs::create_dir_all(folder)?;
            }
            let next = self.0.with_extension("next");
            fs::write(&next, serde_json::to_vec(own)?)?;
            fs::rename(next, &self.0)
        };
        write().map_err(|error| format!("{} is not written: {error}", self.0.display()))
    }
}
