use std::{path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use tautline_latency_protocol::{echo_id, pair_key, responder_key, signing_key};

/// The pause between two steps of a key rotation, within which all agents receive the new keys.
pub(crate) const ROTATION_STEP: Duration = Duration::from_secs(10);
const MIN_SECRET_BYTES: usize = 16;
const MAX_SECRET_BYTES: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{0}: {1}")]
    File(Box<str>, std::io::Error),
    #[error("{0}: {1} bytes; write {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} random bytes")]
    Length(Box<str>, usize),
    #[error("the system gives no random numbers")]
    Random,
}

/// The secrets from which the keys of echoes are derived. Clones share them.
#[derive(Clone)]
pub struct EchoKeys(Arc<ArcSwap<Secrets>>);

struct Secrets {
    /// The secret from which the keys of initiators are derived.
    issued: hmac::Key,
    /// The secrets whose keys responders accept, newest first.
    accepted: Vec<hmac::Key>,
}

impl std::fmt::Debug for EchoKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EchoKeys")
    }
}

impl EchoKeys {
    fn new(secret: &[u8]) -> Self {
        let issued = signing_key(secret);
        let accepted = vec![issued.clone()];
        Self(Arc::new(ArcSwap::from_pointee(Secrets {
            issued,
            accepted,
        })))
    }

    /// Generates a secret of 32 random bytes, which no other replica has. Fails if the system has
    /// no random bytes.
    pub fn random() -> Result<Self, KeyError> {
        let mut secret = [0; 32];
        let filled = SystemRandom::new().fill(&mut secret);
        filled.map_err(|_| KeyError::Random)?;
        Ok(Self::new(&secret))
    }

    /// Derives keys from a secret, which errors name by its `source`.
    pub(crate) fn from_bytes(secret: &[u8], source: &str) -> Result<Self, KeyError> {
        checked(secret, source).map(Self::new)
    }

    pub(crate) fn from_file(path: &Path) -> Result<Self, KeyError> {
        read(path).map(|secret| Self::new(&secret))
    }

    /// Starts a rotation to the secret in the file. Responders accept it and the previous one;
    /// initiators use it after [`EchoKeys::issue_newest`]. After an error the old secret stays in
    /// use.
    pub(crate) fn reload(&self, path: &Path) -> Result<(), KeyError> {
        self.accept(&read(path)?);
        Ok(())
    }

    fn accept(&self, secret: &[u8]) {
        let issued = self.0.load().issued.clone();
        let new = signing_key(secret);
        let accepted = vec![new, issued.clone()];
        self.0.store(Arc::new(Secrets { issued, accepted }));
    }

    pub(crate) fn issue_newest(&self) {
        let accepted = self.0.load().accepted.clone();
        if let Some(issued) = accepted.first().cloned() {
            self.0.store(Arc::new(Secrets { issued, accepted }));
        }
    }

    pub(crate) fn drop_previous(&self) {
        let issued = self.0.load().issued.clone();
        let accepted = vec![issued.clone()];
        self.0.store(Arc::new(Secrets { issued, accepted }));
    }

    pub(crate) fn pair_key(&self, from: &str, to: &str) -> Vec<u8> {
        let responder = responder_key(&self.0.load().issued, to).signing_key();
        pair_key(&responder, echo_id(from)).as_bytes().to_vec()
    }

    pub(crate) fn responder_keys(&self, instance: &str) -> Vec<Vec<u8>> {
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

fn checked<'a>(secret: &'a [u8], source: &str) -> Result<&'a [u8], KeyError> {
    match secret.len() {
        MIN_SECRET_BYTES..=MAX_SECRET_BYTES => Ok(secret),
        other => Err(KeyError::Length(source.into(), other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derived(own: &[u8], initiator: &str) -> Vec<u8> {
        let key = pair_key(&signing_key(own), echo_id(initiator));
        key.as_bytes().to_vec()
    }

    #[test]
    fn both_ends_derive_the_same_key() {
        let keys = EchoKeys::new(b"0123456789abcdef");
        let own = keys.responder_keys("r");
        assert_eq!(keys.pair_key("i", "r"), derived(&own[0], "i"));
        assert_ne!(keys.pair_key("i", "r"), keys.pair_key("x", "r"));
        assert_ne!(keys.pair_key("i", "r"), keys.pair_key("r", "i"));
    }

    #[test]
    fn new_secret_is_accepted_before_it_is_issued() {
        let keys = EchoKeys::new(b"0123456789abcdef");
        let old = keys.pair_key("i", "r");
        keys.accept(b"fedcba9876543210");
        let own = keys.responder_keys("r");
        assert_eq!(own.len(), 2);
        assert_eq!(keys.pair_key("i", "r"), old);
        assert_eq!(derived(&own[1], "i"), old);
        keys.issue_newest();
        assert_eq!(keys.pair_key("i", "r"), derived(&own[0], "i"));
        assert_eq!(
            keys.responder_keys("r"),
            own,
            "the old one is still accepted"
        );
        keys.drop_previous();
        assert_eq!(keys.responder_keys("r"), own[..1]);
        assert_eq!(keys.pair_key("i", "r"), derived(&own[0], "i"));
    }

    #[test]
    fn secret_file_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let keys = EchoKeys::from_file(&path).unwrap();
        let same = EchoKeys::new(b"0123456789abcdef");
        assert_eq!(keys.pair_key("i", "r"), same.pair_key("i", "r"));
        std::fs::write(&path, "short").unwrap();
        let error = keys.reload(&path).unwrap_err().to_string();
        assert!(error.contains("key: 5 bytes; write 16"), "{error}");
        assert_eq!(keys.pair_key("i", "r"), same.pair_key("i", "r"));
        let other = EchoKeys::random().unwrap();
        assert_ne!(other.pair_key("i", "r"), same.pair_key("i", "r"));
    }
}
