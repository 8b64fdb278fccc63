//! Keeps the `caBundle` of our webhook configurations in step. Nothing else in
//! them is touched, and no others.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tautline_runtime::one;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::Metrics,
    webhooks::{MUTATING, VALIDATING},
};

const DEADLINE: Duration = Duration::from_secs(10);
/// After a write that failed.
const RETRY: Duration = Duration::from_secs(2);

/// What we need of either kind.
trait Configuration: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send {
    fn clients(&self) -> Vec<(&str, &WebhookClientConfig)>;
}

impl Configuration for MutatingWebhookConfiguration {
    fn clients(&self) -> Vec<(&str, &WebhookClientConfig)> {
        let hooks = self.webhooks.iter().flatten();
        hooks.map(|h| (h.name.as_str(), &h.client_config)).collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    fn clients(&self) -> Vec<(&str, &WebhookClientConfig)> {
        let hooks = self.webhooks.iter().flatten();
        hooks.map(|h| (h.name.as_str(), &h.client_config)).collect()
    }
}

/// A configuration, as kind and name.
type Key = (&'static str, &'static str);
/// What each webhook of one holds; `None`: the configuration is not there.
type Held = Option<Vec<(String, String)>>;

/// Keeps every configuration of ours in step with `bundle` until told to stop;
/// `trusted` gets what their webhooks hold.
pub(crate) async fn keep(
    client: Client,
    mut bundle: watch::Receiver<String>,
    trusted: watch::Sender<Vec<String>>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let (sender, mut seen) = mpsc::channel(64);
    for name in MUTATING {
        follow::<MutatingWebhookConfiguration>(&client, ("mutating", name), &sender, &stop);
    }
    for name in VALIDATING {
        follow::<ValidatingWebhookConfiguration>(&client, ("validating", name), &sender, &stop);
    }
    drop(sender);
    let mut all: BTreeMap<Key, Held> = BTreeMap::new();
    loop {
        let wanted = bundle.borrow_and_update().clone();
        let holds = all.values().flatten().flatten();
        let holds: Vec<String> = holds.map(|(_, held)| held.clone()).collect();
        trusted.send_if_modified(|before| {
            let changed = *before != holds;
            *before = holds;
            changed
        });
        let mut failed = false;
        for (key, held) in all.iter().filter(|_| !wanted.is_empty()) {
            let hooks = held.iter().flatten();
            let stale: Vec<&str> = hooks
                .filter(|(_, held)| *held != wanted)
                .map(|(name, _)| name.as_str())
                .collect();
            if stale.is_empty() {
                continue;
            }
            match write(&client, *key, &stale, &wanted).await {
                Ok(()) => {
                    metrics.bundle("written");
                    tracing::info!(configuration = key.1, kind = key.0, "caBundle is in step");
                }
                Err(error) => {
                    failed = true;
                    metrics.bundle("refused");
                    tracing::warn!(configuration = key.1, kind = key.0, %error, "caBundle is not written");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = bundle.changed() => if changed.is_err() { return },
            found = seen.recv() => match found {
                Some((key, held)) => _ = all.insert(key, held),
                None => return,
            },
            () = tokio::time::sleep(RETRY), if failed => {}
        }
    }
}

fn follow<K: Configuration + 'static>(
    client: &Client,
    key: Key,
    seen: &mpsc::Sender<(Key, Held)>,
    stop: &CancellationToken,
) {
    let (api, seen, stop) = (Api::<K>::all(client.clone()), seen.clone(), stop.clone());
    tokio::spawn(async move {
        let (found, mut queue) = watch::channel(None);
        let see = |object: Option<K>| {
            let held = object.map(|o| o.clients().into_iter().map(holds).collect());
            found.send_replace(Some(held));
        };
        let forward = async {
            while queue.changed().await.is_ok() {
                let Some(held) = queue.borrow_and_update().clone() else {
                    continue;
                };
                if seen.send((key, held)).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = one::follow(api, key.1, stop, see) => {}
            () = forward => {}
        }
    });
}

fn holds((name, client): (&str, &WebhookClientConfig)) -> (String, String) {
    let bytes = client.ca_bundle.as_ref().map(|b| b.0.as_slice());
    let text = String::from_utf8_lossy(bytes.unwrap_or_default());
    (name.to_owned(), text.into_owned())
}

/// Webhooks are told apart by their names: a strategic merge changes these alone.
async fn write(client: &Client, key: Key, hooks: &[&str], bundle: &str) -> Result<(), String> {
    let bundle = ByteString(bundle.as_bytes().to_vec());
    let of = |name: &&str| json!({"name": name, "clientConfig": {"caBundle": bundle}});
    let patch = json!({"webhooks": hooks.iter().map(of).collect::<Vec<_>>()});
    match key.0 {
        "mutating" => patch_one::<MutatingWebhookConfiguration>(client, key.1, patch).await,
        _ => patch_one::<ValidatingWebhookConfiguration>(client, key.1, patch).await,
    }
}

async fn patch_one<K: Configuration>(
    client: &Client,
    name: &str,
    patch: Value,
) -> Result<(), String> {
    let api = Api::<K>::all(client.clone());
    let patch = Patch::Strategic(patch);
    let params = PatchParams::default();
    let call = api.patch(name, &params, &patch);
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(patched)) => {
            tracing::debug!(name = %patched.name_any(), "patched");
            Ok(())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the API server did not answer in time".to_owned()),
    }
}
