//! The claims that are prepared on this node, in a file that outlives the agent's process. Like the
//! containers that use them, it does not outlive a reboot.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tautline_gpu_placement::{
    device_annotation::{self, CardShare},
    shape::CARD_MILLI,
};

/// A claim that is prepared, or is being prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PreparedClaim {
    pub namespace: String,
    pub name: String,
    /// The parts of cards, as the annotation of a pod has them.
    shares: String,
}

impl PreparedClaim {
    pub fn new(namespace: &str, name: &str, shares: &[CardShare]) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            shares: device_annotation::format(shares),
        }
    }

    /// Returns the parts of cards; a claim of an administrator has none.
    pub fn shares(&self) -> Vec<CardShare> {
        device_annotation::parse(&self.shares, CARD_MILLI).unwrap_or_default()
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
        let claims = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Claims::new(),
            Err(error) => return Err(error),
        };
        let claims = Mutex::new(claims);
        Ok(Self { claims, file })
    }

    /// Returns all claims with their UIDs.
    pub fn all(&self) -> Vec<(String, PreparedClaim)> {
        let claims = self.claims.lock();
        claims
            .iter()
            .map(|(k, claim)| (k.clone(), claim.clone()))
            .collect()
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
            write(&self.file, &next)?;
            *claims = next;
        }
        Ok(changed)
    }
}

fn write(file: &Path, claims: &Claims) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let next = file.with_extension("next");
    fs::write(&next, serde_json::to_vec(claims)?)?;
    fs::rename(next, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_outlive_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run/claims.json");
        let shares = device_annotation::parse("GPU-a:250,GPU-b:125@3", CARD_MILLI).unwrap();
        let claim = PreparedClaim::new("vision", "quarter", &shares);
        let claims = PreparedClaims::read(file.clone()).unwrap();
        assert!(claims.all().is_empty());
        assert!(claims.add("u1", claim.clone()).unwrap());
        assert!(!claims.add("u1", claim.clone()).unwrap());
        claims
            .add("u2", PreparedClaim::new("vision", "monitor", &[]))
            .unwrap();
        let again = PreparedClaims::read(file.clone()).unwrap();
        assert_eq!(again.all()[0], ("u1".to_owned(), claim));
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
