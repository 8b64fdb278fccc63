//! The keys of echoes. From one secret each node has its own: HMAC-SHA256 of
//! "responder" and its instance. Two nodes share HMAC-SHA256, under the
//! responder's key, of the initiator's echo number (8 bytes, big-endian): who
//! answers works it out, and no node can speak for another.

use std::{path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use tautline_latency_protocol::{echo_id, pair_key, responder_key, signing_key};

/// Responders learn a new secret so long before initiators use it.
pub(crate) const SETTLING: Duration = Duration::from_secs(10);
const SHORTEST_BYTES: usize = 16;
const LONGEST_BYTES: usize = 4096;

/// A secret that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    File(Box<str>, std::io::Error),
    /// Too short to be a secret, or no secret at all.
    #[error("{0}: {1} bytes; write {SHORTEST_BYTES} to {LONGEST_BYTES} random bytes")]
    Length(Box<str>, usize),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

/// The secrets in use. Clones are one.
#[derive(Clone)]
pub struct Keys(Arc<ArcSwap<Secrets>>);

struct Secrets {
    /// What initiators are given keys of.
    issued: hmac::Key,
    /// What responders answer to, the newest first.
    accepted: Vec<hmac::Key>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    fn new(secret: &[u8]) -> Self {
        let issued = signing_key(secret);
        let accepted = vec![issued.clone()];
        Self(Arc::new(ArcSwap::from_pointee(Secrets {
            issued,
            accepted,
        })))
    }

    /// Of a secret that ends with the process.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn random() -> Result<Self, KeyError> {
        let mut secret = [0; 32];
        let filled = SystemRandom::new().fill(&mut secret);
        filled.map_err(|_| KeyError::Random)?;
        Ok(Self::new(&secret))
    }

    /// Of a secret that replicas share, kept where `from` says.
    ///
    /// # Errors
    /// It is too short, or too long.
    pub fn of(secret: &[u8], from: &str) -> Result<Self, KeyError> {
        checked(secret, from).map(Self::new)
    }

    /// Of the secret in a file, which replicas share.
    ///
    /// # Errors
    /// A file that cannot be read, or holds too little.
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        read(path).map(|secret| Self::new(&secret))
    }

    /// Takes the secret that the file holds now: responders accept it from now on,
    /// and the last one still; initiators use it after [`Keys::settle`].
    ///
    /// # Errors
    /// As of [`Keys::from_file`]; the old one stays.
    pub fn reload(&self, path: &Path) -> Result<(), KeyError> {
        self.rotate(&read(path)?);
        Ok(())
    }

    fn rotate(&self, secret: &[u8]) {
        let issued = self.0.load().issued.clone();
        let new = signing_key(secret);
        let accepted = vec![new, issued.clone()];
        self.0.store(Arc::new(Secrets { issued, accepted }));
    }

    /// Initiators are given keys of the newest secret from now on.
    pub fn settle(&self) {
        let accepted = self.0.load().accepted.clone();
        if let Some(issued) = accepted.first().cloned() {
            self.0.store(Arc::new(Secrets { issued, accepted }));
        }
    }

    /// Responders answer to the newest secret alone: whoever was given keys of the
    /// last has new ones by now.
    pub(crate) fn drop_old(&self) {
        let issued = self.0.load().issued.clone();
        let accepted = vec![issued.clone()];
        self.0.store(Arc::new(Secrets { issued, accepted }));
    }

    /// The key of the packets that `from` exchanges with `to` when it asks.
    pub(crate) fn between(&self, from: &str, to: &str) -> Vec<u8> {
        let responder = responder_key(&self.0.load().issued, to).signing_key();
        pair_key(&responder, echo_id(from)).as_bytes().to_vec()
    }

    /// The responder's own keys, the newest first.
    pub(crate) fn of_responder(&self, instance: &str) -> Vec<Vec<u8>> {
        let secrets = self.0.load();
        let all = secrets.accepted.iter();
        all.map(|s| responder_key(s, instance).as_bytes().to_vec())
            .collect()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|e| KeyError::File(name.as_str().into(), e))?;
    checked(bytes.trim_ascii(), &name).map(<[u8]>::to_vec)
}

fn checked<'a>(secret: &'a [u8], from: &str) -> Result<&'a [u8], KeyError> {
    match secret.len() {
        SHORTEST_BYTES..=LONGEST_BYTES => Ok(secret),
        other => Err(KeyError::Length(from.into(), other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an agent works out of its own keys for whoever asks it.
    fn of_asker(own: &[u8], asker: &str) -> Vec<u8> {
        let key = pair_key(&signing_key(own), echo_id(asker));
        key.as_bytes().to_vec()
    }

    #[test]
    fn both_ends_have_the_same_key_and_others_do_not() {
        let keys = Keys::new(b"0123456789abcdef");
        let own = keys.of_responder("r");
        assert_eq!(keys.between("i", "r"), of_asker(&own[0], "i"));
        assert_ne!(keys.between("i", "r"), keys.between("x", "r"));
        assert_ne!(keys.between("i", "r"), keys.between("r", "i"));
    }

    #[test]
    fn a_new_secret_is_accepted_before_it_is_used() {
        let keys = Keys::new(b"0123456789abcdef");
        let old = keys.between("i", "r");
        keys.rotate(b"fedcba9876543210");
        let own = keys.of_responder("r");
        assert_eq!(own.len(), 2);
        assert_eq!(keys.between("i", "r"), old);
        assert_eq!(of_asker(&own[1], "i"), old);
        keys.settle();
        assert_eq!(keys.between("i", "r"), of_asker(&own[0], "i"));
        assert_eq!(keys.of_responder("r"), own, "the old is accepted still");
        keys.drop_old();
        assert_eq!(keys.of_responder("r"), own[..1]);
        assert_eq!(keys.between("i", "r"), of_asker(&own[0], "i"));
    }

    #[test]
    fn a_file_is_shared_and_a_poor_one_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let keys = Keys::from_file(&path).unwrap();
        let same = Keys::new(b"0123456789abcdef");
        assert_eq!(keys.between("i", "r"), same.between("i", "r"));
        std::fs::write(&path, "short").unwrap();
        let error = keys.reload(&path).unwrap_err().to_string();
        assert!(error.contains("key: 5 bytes; write 16"), "{error}");
        assert_eq!(keys.between("i", "r"), same.between("i", "r"));
        let other = Keys::random().unwrap();
        assert_ne!(other.between("i", "r"), same.between("i", "r"));
    }
}
