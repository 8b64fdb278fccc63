//! The claims that are prepared on this node, in a file that outlives the agent's process. Like the
//! containers that use them, it does not outlive a reboot.

use std::{collections::BTreeMap, io, path::PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tautline_gpu_placement::{
    device_annotation::{self, CardShare},
    shape::CARD_MILLI,
};

use crate::whole_file;

/// A claim that is prepared, or is being prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PreparedClaim {
    pub namespace: String,
    pub name: String,
    pub devices: Vec<PreparedDevice>,
}

/// A device of a prepared claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PreparedDevice {
    pub device: String,
    pub share_id: Option<String>,
    /// The part of a card, as the annotation of a pod has it.
    pub share: String,
    /// True for administrative access, which consumes no capacity of the card.
    pub is_admin: bool,
}

impl PreparedDevice {
    /// Returns the part of a card.
    pub fn share(&self) -> Option<CardShare> {
        let shares = device_annotation::parse(&self.share, CARD_MILLI).ok()?;
        shares.into_iter().next()
    }
}

impl PreparedClaim {
    /// Returns the parts of cards that the claim takes.
    pub fn shares(&self) -> Vec<CardShare> {
        let taking = self.devices.iter().filter(|device| !device.is_admin);
        taking.filter_map(PreparedDevice::share).collect()
    }
}

type Claims = BTreeMap<String, PreparedClaim>;

/// The prepared claims by UID.
#[derive(Debug, Default)]
pub(crate) struct PreparedClaims {
    claims: Mutex<Claims>,
    file: PathBuf,
}

impl PreparedClaims {
    /// Reads the file; if it is missing, no claim is prepared.
    ///
    /// # Errors
    /// The file cannot be read, so that the agent would not know which cards are held.
    pub fn read(file: PathBuf) -> io::Result<Self> {
        let claims = Mutex::new(whole_file::read(&file)?);
        Ok(Self { claims, file })
    }

    /// Returns all claims with their UIDs.
    pub fn all(&self) -> Vec<(String, PreparedClaim)> {
        self.claims.lock().clone().into_iter().collect()
    }

    /// Adds or replaces a claim, and returns whether it is new.
    pub fn add(&self, uid: &str, claim: PreparedClaim) -> io::Result<bool> {
        self.change(|claims| claims.insert(uid.to_owned(), claim).is_none())
    }

    /// Removes the claim, if it is there.
    pub fn remove(&self, uid: &str) -> io::Result<()> {
        self.change(|claims| _ = claims.remove(uid))
    }

    /// Changes the claims once the file has them.
    fn change<T>(&self, change: impl FnOnce(&mut Claims) -> T) -> io::Result<T> {
        let mut claims = self.claims.lock();
        let mut next = claims.clone();
        let changed = change(&mut next);
        if next != *claims {
            whole_file::write(&self.file, &next)?;
            *claims = next;
        }
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn claims_outlive_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run/claims.json");
        let device = |share: &str, is_admin| PreparedDevice {
            device: "gpu-a".to_owned(),
            share: share.to_owned(),
            is_admin,
            ..PreparedDevice::default()
        };
        let claim = PreparedClaim {
            namespace: "vision".to_owned(),
            name: "quarter".to_owned(),
            devices: vec![
                device("GPU-a:250", false),
                device("GPU-b:125@3", false),
                device("GPU-c:1000", true),
            ],
        };
        let claims = PreparedClaims::read(file.clone()).unwrap();
        assert!(claims.all().is_empty());
        assert!(claims.add("u1", claim.clone()).unwrap());
        assert!(!claims.add("u1", claim.clone()).unwrap());
        claims.add("u2", PreparedClaim::default()).unwrap();
        let again = PreparedClaims::read(file.clone()).unwrap();
        assert_eq!(again.all()[0], ("u1".to_owned(), claim));
        let shares = device_annotation::parse("GPU-a:250,GPU-b:125@3", CARD_MILLI).unwrap();
        assert_eq!(again.all()[0].1.shares(), shares);
        assert!(again.all()[1].1.shares().is_empty());
        again.remove("u1").unwrap();
        again.remove("u3").unwrap();
        assert_eq!(PreparedClaims::read(file.clone()).unwrap().all().len(), 1);
        fs::write(&file, "{").unwrap();
        assert!(PreparedClaims::read(file).is_err());
    }

    #[test]
    fn claim_that_is_not_written_is_not_prepared() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("claims.json");
        let claims = PreparedClaims::read(file.clone()).unwrap();
        fs::create_dir(file.with_extension("next")).unwrap();
        assert!(claims.add("u1", PreparedClaim::default()).is_err());
        assert!(claims.all().is_empty());
    }
}
