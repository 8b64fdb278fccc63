//! The Secret with the echo key, which all replicas share; the first replica creates it.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, api::PostParams};
use ring::rand::{SecureRandom, SystemRandom};
use tautline_runtime::api_call::within;

use crate::agents::keys::EchoKeys;

const FIELD: &str = "key";
const KEY_BYTES: usize = 32;
const DEADLINE: Duration = Duration::from_secs(10);

pub(crate) async fn shared(client: &Client, namespace: &str, name: &str) -> Result<EchoKeys> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let at = format!("Secret {namespace}/{name}");
    let find = async || match within(DEADLINE, secrets.get_opt(name)).await? {
        Some(found) => anyhow::Ok(found),
        None => {
            let (params, secret) = (PostParams::default(), new_secret(name)?);
            match within(DEADLINE, secrets.create(&params, &secret)).await {
                // Another replica has created it meanwhile.
                Err(error) if error.code() == Some(409) => {
                    Ok(within(DEADLINE, secrets.get(name)).await?)
                }
                created => Ok(created?),
            }
        }
    };
    keys_of(find().await.with_context(|| at.clone())?, &at)
}

fn keys_of(secret: Secret, at: &str) -> Result<EchoKeys> {
    let key = secret.data.and_then(|mut data| data.remove(FIELD));
    let key = key.map(|k| k.0).unwrap_or_default();
    EchoKeys::from_bytes(&key, &format!("{at}, data.{FIELD}"))
        .context("delete the Secret and restart, and a new one is created")
}

fn new_secret(name: &str) -> Result<Secret> {
    let mut key = vec![0; KEY_BYTES];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| anyhow!("the system has no random numbers"))?;
    let mut secret = Secret {
        data: Some([(FIELD.to_owned(), ByteString(key))].into()),
        ..Secret::default()
    };
    secret.metadata.name = Some(name.to_owned());
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_secret_has_a_valid_key_and_an_empty_one_is_refused() {
        assert!(keys_of(new_secret("echo").unwrap(), "Secret a/echo").is_ok());
        assert_ne!(new_secret("a").unwrap().data, new_secret("a").unwrap().data);
        let error = keys_of(Secret::default(), "Secret a/echo").unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("delete the Secret")
                && error.contains("Secret a/echo, data.key: 0 bytes"),
            "{error}"
        );
    }
}
