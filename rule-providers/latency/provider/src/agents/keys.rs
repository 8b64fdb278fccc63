//! The secrets from which the keys of echoes are derived: random, of a file, or of a Secret.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use arc_swap::ArcSwap;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, api::PostParams};
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use tautline_latency_protocol::{echo_id, pair_key, responder_key, signing_key};
use tautline_runtime::{api_call::within, tls::FileChanges};
use tokio_util::sync::CancellationToken;

use crate::network::Network;

/// The pause between two steps of a key rotation, within which all agents receive the new keys.
const ROTATION_STEP: Duration = Duration::from_secs(10);
const MIN_SECRET_BYTES: usize = 16;
const MAX_SECRET_BYTES: usize = 4096;
/// The field of the Secret with the echo key.
const FIELD: &str = "key";
const API_TIMEOUT: Duration = Duration::from_secs(10);

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
#[derive(Clone, Debug)]
pub struct EchoKeys(Arc<ArcSwap<Secrets>>);

#[derive(Debug)]
struct Secrets {
    /// The secret from which the keys of initiators are derived.
    issued: hmac::Key,
    /// The secrets whose keys responders accept, newest first.
    accepted: Vec<hmac::Key>,
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
        random_secret().map(|secret| Self::new(&secret))
    }

    pub(crate) fn from_file(path: &Path) -> Result<Self, KeyError> {
        read(path).map(|secret| Self::new(&secret))
    }

    /// Derives the keys from a Secret that all replicas share; the first replica creates it.
    pub(crate) async fn of_secret(
        client: &Client,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<Self> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let at = format!("Secret {namespace}/{name}");
        let find = async || match within(API_TIMEOUT, secrets.get_opt(name)).await? {
            Some(found) => anyhow::Ok(found),
            None => {
                let (params, secret) = (PostParams::default(), new_secret(name)?);
                match within(API_TIMEOUT, secrets.create(&params, &secret)).await {
                    // Another replica has created it meanwhile.
                    Err(error) if error.code() == Some(409) => {
                        Ok(within(API_TIMEOUT, secrets.get(name)).await?)
                    }
                    created => Ok(created?),
                }
            }
        };
        Self::in_secret(find().await.with_context(|| at.clone())?, &at)
    }

    fn in_secret(secret: Secret, at: &str) -> anyhow::Result<Self> {
        let key = secret.data.and_then(|mut data| data.remove(FIELD));
        let key = key.map(|k| k.0).unwrap_or_default();
        let checked = checked(&key, &format!("{at}, data.{FIELD}"));
        let key = checked.context("delete the Secret and restart, and a new one is created")?;
        Ok(Self::new(key))
    }

    /// Rotates the keys whenever the file changes. Responders accept the new secret and the
    /// previous one; initiators use it one step later. After an error the old secret stays in use.
    pub(crate) async fn follow_file(
        &self,
        file: &Path,
        network: &Network,
        stop: &CancellationToken,
    ) {
        let mut changes = FileChanges::new(vec![file.to_owned()]);
        while changes.next(stop).await {
            match read(file) {
                Ok(secret) => self.accept(&secret),
                Err(error) => {
                    tracing::warn!("{error}; keeping the old echo key");
                    continue;
                }
            }
            for next_step in [Self::issue_newest, Self::drop_previous] {
                network.keys_changed();
                let pause = tokio::time::sleep(ROTATION_STEP);
                if stop.run_until_cancelled(pause).await.is_none() {
                    return;
                }
                next_step(self);
            }
            network.keys_changed();
            tracing::info!(file = %file.display(), "echo key replaced");
        }
    }

    fn accept(&self, secret: &[u8]) {
        let issued = self.0.load().issued.clone();
        self.set(issued.clone(), vec![signing_key(secret), issued]);
    }

    fn issue_newest(&self) {
        let accepted = self.0.load().accepted.clone();
        if let Some(newest) = accepted.first() {
            self.set(newest.clone(), accepted.clone());
        }
    }

    fn drop_previous(&self) {
        let issued = self.0.load().issued.clone();
        self.set(issued.clone(), vec![issued]);
    }

    fn set(&self, issued: hmac::Key, accepted: Vec<hmac::Key>) {
        self.0.store(Arc::new(Secrets { issued, accepted }));
    }

    pub(crate) fn pair_key(&self, from: &str, to: &str) -> Vec<u8> {
        let responder = signing_key(responder_key(&self.0.load().issued, to));
        pair_key(&responder, echo_id(from)).as_ref().to_vec()
    }

    pub(crate) fn responder_keys(&self, instance: &str) -> Vec<Vec<u8>> {
        let secrets = self.0.load();
        let all = secrets.accepted.iter();
        all.map(|s| responder_key(s, instance).as_ref().to_vec())
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

fn random_secret() -> Result<[u8; 32], KeyError> {
    let mut secret = [0; 32];
    let filled = SystemRandom::new().fill(&mut secret);
    filled.map_err(|_| KeyError::Random)?;
    Ok(secret)
}

fn new_secret(name: &str) -> Result<Secret, KeyError> {
    let mut secret = Secret {
        data: Some([(FIELD.to_owned(), ByteString(random_secret()?.to_vec()))].into()),
        ..Secret::default()
    };
    secret.metadata.name = Some(name.to_owned());
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::{hello, network_of};

    fn derived(own: &[u8], initiator: &str) -> Vec<u8> {
        let key = pair_key(&signing_key(own), echo_id(initiator));
        key.as_ref().to_vec()
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
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("key: 5 bytes; write 16"), "{error}");
        assert_eq!(keys.pair_key("i", "r"), same.pair_key("i", "r"));
        let other = EchoKeys::random().unwrap();
        assert_ne!(other.pair_key("i", "r"), same.pair_key("i", "r"));
    }

    #[tokio::test(start_paused = true)]
    async fn new_key_is_sent_in_three_steps_and_an_invalid_one_never() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "0123456789abcdef").unwrap();
        let keys = EchoKeys::from_file(&path).unwrap();
        let old = keys.pair_key("i", "r");
        let (network, stop) = (network_of(&["i"]), CancellationToken::new());
        let mut session = network.open_session(&hello("i")).unwrap();
        let followed = (
            keys.clone(),
            Arc::clone(&network),
            path.clone(),
            stop.clone(),
        );
        let follower = tokio::spawn(async move {
            let (keys, network, path, stop) = followed;
            keys.follow_file(&path, &network, &stop).await;
        });
        tokio::task::yield_now().await;

        std::fs::write(&path, "short").unwrap();
        tokio::time::sleep(ROTATION_STEP).await;
        assert!(!session.targets.has_changed().unwrap());

        std::fs::write(&path, "fedcba9876543210").unwrap();
        let mut new_list = async || {
            let sent = tokio::time::timeout(ROTATION_STEP * 6, session.targets.changed());
            sent.await.expect("a new list").unwrap();
        };
        new_list().await;
        assert_eq!(keys.responder_keys("r").len(), 2);
        assert_eq!(keys.pair_key("i", "r"), old);
        new_list().await;
        assert_ne!(keys.pair_key("i", "r"), old);
        new_list().await;
        assert_eq!(keys.responder_keys("r").len(), 1, "the old one is dropped");
        stop.cancel();
        follower.await.unwrap();
    }

    #[test]
    fn created_secret_has_a_valid_key_and_an_empty_one_is_refused() {
        assert!(EchoKeys::in_secret(new_secret("echo").unwrap(), "Secret a/echo").is_ok());
        assert_ne!(new_secret("a").unwrap().data, new_secret("a").unwrap().data);
        let error = EchoKeys::in_secret(Secret::default(), "Secret a/echo").unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("delete the Secret")
                && error.contains("Secret a/echo, data.key: 0 bytes"),
            "{error}"
        );
    }
}
