//! Writes the `caBundle` of the server's webhooks, and the rules and failurePolicy of the webhook
//! of mutation policies.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook,
        ValidatingWebhookConfiguration, WebhookClientConfig,
    },
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tautline_runtime::single_watch;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::Metrics,
    mutations::ActivePolicies,
    webhooks::{MUTATING, POLICIES, VALIDATING},
};

/// The longest time for one write.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// The delay before failed writes are repeated.
const RETRY_DELAY: Duration = Duration::from_secs(2);

trait Configuration: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send {
    fn hooks(&self) -> Vec<Hook>;
}

impl Configuration for MutatingWebhookConfiguration {
    fn hooks(&self) -> Vec<Hook> {
        let hook = |h: &MutatingWebhook| Hook {
            name: h.name.clone(),
            bundle: bundle_of(&h.client_config),
            rules: json!(h.rules.as_deref().unwrap_or_default()),
            fail: h.failure_policy.as_deref() != Some("Ignore"),
        };
        self.webhooks.iter().flatten().map(hook).collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    fn hooks(&self) -> Vec<Hook> {
        let hook = |h: &ValidatingWebhook| Hook {
            name: h.name.clone(),
            bundle: bundle_of(&h.client_config),
            rules: json!(h.rules.as_deref().unwrap_or_default()),
            fail: h.failure_policy.as_deref() != Some("Ignore"),
        };
        self.webhooks.iter().flatten().map(hook).collect()
    }
}

fn bundle_of(client: &WebhookClientConfig) -> String {
    let bytes = client.ca_bundle.as_ref().map(|b| b.0.as_slice());
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

#[derive(Clone, Debug, PartialEq)]
struct Hook {
    name: String,
    bundle: String,
    rules: Value,
    fail: bool,
}

type Key = (&'static str, &'static str);
/// The webhooks of a configuration; `None` if the configuration does not exist.
type KnownHooks = Option<Vec<Hook>>;

pub(crate) struct Inputs {
    /// The CA bundle to write; `None` if the operator writes it.
    pub bundle: watch::Receiver<Option<String>>,
    pub active: watch::Receiver<Arc<ActivePolicies>>,
}

/// Updates the webhooks until the server stops. `trusted` receives the CA bundles that the webhooks
/// contain.
pub(crate) async fn run(
    client: Client,
    mut inputs: Inputs,
    trusted: watch::Sender<Vec<String>>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let (sender, mut seen) = mpsc::channel(64);
    for name in MUTATING {
        watch_configuration::<MutatingWebhookConfiguration>(
            &client,
            ("mutating", name),
            &sender,
            &stop,
        );
    }
    for name in VALIDATING {
        watch_configuration::<ValidatingWebhookConfiguration>(
            &client,
            ("validating", name),
            &sender,
            &stop,
        );
    }
    drop(sender);
    let mut all: BTreeMap<Key, KnownHooks> = BTreeMap::new();
    loop {
        let bundle = inputs.bundle.borrow_and_update().clone();
        let active = inputs.active.borrow_and_update().clone();
        let known: Vec<&Hook> = all.values().flatten().flatten().collect();
        let bundles: Vec<String> = known.iter().map(|h| h.bundle.clone()).collect();
        trusted.send_if_modified(|before| {
            let changed = *before != bundles;
            *before = bundles;
            changed
        });
        let mut failed = false;
        for (key, hooks) in &all {
            let patches = hooks.iter().flatten();
            let patches = patches.filter_map(|h| patch_for(h, bundle.as_deref(), &active));
            let patches: Vec<Value> = patches.collect();
            if patches.is_empty() {
                continue;
            }
            match write(&client, *key, patches).await {
                Ok(()) => {
                    metrics.webhook_write("written");
                    tracing::info!(configuration = key.1, kind = key.0, "webhooks updated");
                }
                Err(error) => {
                    failed = true;
                    metrics.webhook_write("refused");
                    tracing::warn!(configuration = key.1, kind = key.0, %error, "cannot update the webhooks");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            Ok(()) = inputs.bundle.changed() => {}
            Ok(()) = inputs.active.changed() => {}
            found = seen.recv() => match found {
                Some((key, hooks)) => _ = all.insert(key, hooks),
                None => return,
            },
            () = tokio::time::sleep(RETRY_DELAY), if failed => {}
        }
    }
}

fn patch_for(hook: &Hook, bundle: Option<&str>, active: &ActivePolicies) -> Option<Value> {
    let mut patch = json!({"name": hook.name});
    if let Some(bundle) = bundle.filter(|b| !b.is_empty() && *b != hook.bundle) {
        let bytes = ByteString(bundle.as_bytes().to_vec());
        patch["clientConfig"] = json!({"caBundle": bytes});
    }
    // A replica that has not listed all policies must not narrow the rules.
    if hook.name == POLICIES && active.complete {
        if hook.rules != json!(active.rules) {
            patch["rules"] = json!(active.rules);
        }
        if hook.fail != active.fail {
            patch["failurePolicy"] = if active.fail { "Fail" } else { "Ignore" }.into();
        }
    }
    (patch.as_object()?.len() > 1).then_some(patch)
}

fn watch_configuration<K: Configuration + 'static>(
    client: &Client,
    key: Key,
    seen: &mpsc::Sender<(Key, KnownHooks)>,
    stop: &CancellationToken,
) {
    let (api, seen, stop) = (Api::<K>::all(client.clone()), seen.clone(), stop.clone());
    tokio::spawn(async move {
        let (found, mut queue) = watch::channel(None);
        let see = |object: Option<K>| {
            let hooks = object.map(|o| o.hooks());
            found.send_replace(Some(hooks));
        };
        let forward = async {
            while queue.changed().await.is_ok() {
                let Some(hooks) = queue.borrow_and_update().clone() else {
                    continue;
                };
                if seen.send((key, hooks)).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = single_watch::watch_single(api, key.1, stop, see) => {}
            () = forward => {}
        }
    });
}

/// Writes webhooks of a configuration by a strategic merge, which does not change the other
/// webhooks.
async fn write(client: &Client, key: Key, hooks: Vec<Value>) -> Result<(), String> {
    let patch = json!({"webhooks": hooks});
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
    let patched = tautline_runtime::api_call::within(WRITE_DEADLINE, call).await;
    let patched = patched.map_err(|e| e.to_string())?;
    tracing::debug!(name = %patched.name_any(), "patched");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_applied_manifest_is_completed() {
        let applied: MutatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": "a"}, "webhooks": [{
                "name": POLICIES, "failurePolicy": "Fail", "clientConfig": {},
                "admissionReviewVersions": ["v1"], "sideEffects": "None",
            }],
        }))
        .unwrap();
        let none = ActivePolicies {
            complete: true,
            ..ActivePolicies::default()
        };
        let patch = patch_for(&applied.hooks()[0], None, &none);
        let expected = json!({"name": POLICIES, "failurePolicy": "Ignore"});
        assert_eq!(patch, Some(expected));
    }

    #[test]
    fn only_differences_are_written() {
        let hook = |name: &str| Hook {
            name: name.into(),
            bundle: "CA".into(),
            rules: json!([]),
            fail: false,
        };
        let mut active = ActivePolicies::default();
        assert_eq!(patch_for(&hook("a"), Some("CA"), &active), None);
        assert_eq!(patch_for(&hook("a"), None, &active), None);
        let patch = patch_for(&hook("a"), Some("CB"), &active).unwrap();
        assert_eq!(
            patch,
            json!({"name": "a", "clientConfig": {"caBundle": "Q0I="}})
        );
        active.rules = vec![json!({"resources": ["pods"]})];
        active.fail = true;
        // No other webhook gets rules.
        assert_eq!(patch_for(&hook("a"), Some("CA"), &active), None);
        assert_eq!(patch_for(&hook(POLICIES), Some("CA"), &active), None);
        active.complete = true;
        let patch = patch_for(&hook(POLICIES), Some("CA"), &active).unwrap();
        assert_eq!(patch["failurePolicy"], "Fail");
        assert_eq!(patch["rules"][0]["resources"][0], "pods");
    }
}
