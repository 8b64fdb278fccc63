//! The secret from which the keys of echoes are derived: random, or of a Kubernetes Secret.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, api::PostParams};
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use tautline_latency_protocol::{echo_id, pair_key, responder_key, signing_key};
use tautline_runtime::api_call::within;

const MIN_SECRET_BYTES: usize = 16;
const MAX_SECRET_BYTES: usize = 4096;
/// The field of the Secret with the echo key.
const FIELD: &str = "key";
const API_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{0}: {1} bytes; write {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} random bytes")]
    Length(Box<str>, usize),
    #[error("the system gives no random numbers")]
    Random,
}

/// The secret from which the keys of echoes are derived. Clones share it.
#[derive(Clone, Debug)]
pub struct EchoKeys(Arc<hmac::Key>);

impl EchoKeys {
    fn new(secret: &[u8]) -> Self {
        Self(Arc::new(signing_key(secret)))
    }

    /// Generates a secret of 32 random bytes, which no other replica has. Fails if the system has
    /// no random bytes.
    pub fn random() -> Result<Self, KeyError> {
        random_secret().map(|secret| Self::new(&secret))
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

    pub(crate) fn pair_key(&self, from: &str, to: &str) -> Vec<u8> {
        let responder = signing_key(responder_key(&self.0, to));
        pair_key(&responder, echo_id(from)).as_ref().to_vec()
    }

    pub(crate) fn responder_key(&self, instance: &str) -> Vec<u8> {
        responder_key(&self.0, instance).as_ref().to_vec()
    }
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

    fn derived(own: &[u8], initiator: &str) -> Vec<u8> {
        let key = pair_key(&signing_key(own), echo_id(initiator));
        key.as_ref().to_vec()
    }

    #[test]
    fn both_ends_derive_the_same_key() {
        let keys = EchoKeys::new(b"0123456789abcdef");
        let own = keys.responder_key("r");
        assert_eq!(keys.pair_key("i", "r"), derived(&own, "i"));
        assert_ne!(keys.pair_key("i", "r"), keys.pair_key("x", "r"));
        assert_ne!(keys.pair_key("i", "r"), keys.pair_key("r", "i"));
        let other = EchoKeys::random().unwrap();
        assert_ne!(other.pair_key("i", "r"), keys.pair_key("i", "r"));
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
