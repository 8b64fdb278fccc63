//! The key of the agents' echoes, which the replicas of the latency provider share
//! by a Secret: the first one makes it.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, api::PostParams};
use ring::rand::{SecureRandom, SystemRandom};
use tautline_latency::Keys;

/// The Secret's field.
const FIELD: &str = "key";
const BYTES: usize = 32;
/// The most that each call may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// The keys of the Secret `namespace/name`, which is made if there is none.
///
/// # Errors
/// The API server cannot be asked or refuses, or the Secret holds no key.
pub(super) async fn shared(client: &Client, namespace: &str, name: &str) -> Result<Keys> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let at = format!("Secret {namespace}/{name}");
    let find = async || match timely(secrets.get_opt(name)).await? {
        Some(found) => anyhow::Ok(found),
        None => match timely(secrets.create(&PostParams::default(), &fresh(name)?)).await {
            // Another replica was faster.
            Err(error) if is_conflict(&error) => timely(secrets.get(name)).await,
            made => made,
        },
    };
    keys_of(find().await.with_context(|| at.clone())?, &at)
}

fn keys_of(secret: Secret, at: &str) -> Result<Keys> {
    let key = secret.data.and_then(|mut data| data.remove(FIELD));
    let key = key.map(|k| k.0).unwrap_or_default();
    Keys::of(&key, &format!("{at}, data.{FIELD}"))
        .context("delete the Secret and restart, and a new one is made")
}

fn fresh(name: &str) -> Result<Secret> {
    let mut key = vec![0; BYTES];
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

fn is_conflict(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 409)
}

async fn timely<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T> {
    let answer = tokio::time::timeout(DEADLINE, call).await;
    Ok(answer.with_context(|| format!("no answer within {DEADLINE:?}"))??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_back_and_a_short_one_refused() {
        assert!(keys_of(fresh("echo").unwrap(), "Secret a/echo").is_ok());
        assert_ne!(fresh("a").unwrap().data, fresh("a").unwrap().data);
        let error = keys_of(Secret::default(), "Secret a/echo").unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("delete the Secret")
                && error.contains("Secret a/echo, data.key: 0 bytes"),
            "{error}"
        );
    }
}
