//! Writes the `caBundle` of the server's webhooks, and the rules and failurePolicy of the webhook
//! of mutation policies.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
    },
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use kube_runtime::{WatchStreamExt, watcher::watch_object};
use serde::Deserialize;
use serde_json::{Value, json};
use tautline_runtime::{api_call, backoff::WatchBackoff, error_text::error_text};
use tokio::sync::watch;

use crate::{
    metrics::Metrics,
    mutations::ActivePolicies,
    webhooks::{ConfigurationKey, POLICIES, configurations},
};

/// The longest time for one write.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// The delay before failed writes are repeated.
const RETRY_DELAY: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq)]
struct Hook {
    name: String,
    bundle: String,
    rules: Value,
    fail: bool,
}

/// Updates the webhooks for as long as the future is polled. `bundle` is the CA bundle to write, or `None` if
/// the operator writes it. `trusted` receives the CA bundles that the webhooks contain.
pub(crate) async fn run(
    client: Client,
    mut bundle: watch::Receiver<Option<String>>,
    mut active: watch::Receiver<Arc<ActivePolicies>>,
    trusted: watch::Sender<Vec<String>>,
    metrics: Metrics,
) {
    let watches = configurations().map(|key| Box::pin(watch_configuration(&client, key)));
    let mut seen = stream::select_all(watches);
    let mut all: BTreeMap<ConfigurationKey, Vec<Hook>> = BTreeMap::new();
    loop {
        let ca = bundle.borrow_and_update().clone();
        let policies = active.borrow_and_update().clone();
        let bundles: Vec<String> = all.values().flatten().map(|h| h.bundle.clone()).collect();
        trusted.send_if_modified(|before| {
            let changed = *before != bundles;
            *before = bundles;
            changed
        });
        let mut failed = false;
        for (key, hooks) in &all {
            let patches = hooks.iter();
            let patches = patches.filter_map(|h| patch_for(h, ca.as_deref(), &policies));
            let patches: Vec<Value> = patches.collect();
            if patches.is_empty() {
                continue;
            }
            // A strategic merge does not change the other webhooks of the configuration.
            let patch = Patch::Strategic(json!({"webhooks": patches}));
            let (api, params) = (api(&client, *key), PatchParams::default());
            let call = api.patch(key.1, &params, &patch);
            match api_call::within(WRITE_DEADLINE, call).await {
                Ok(_) => {
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
            Ok(()) = bundle.changed() => {}
            Ok(()) = active.changed() => {}
            Some((key, hooks)) = seen.next() => { all.insert(key, hooks); }
            () = tokio::time::sleep(RETRY_DELAY), if failed => {}
        }
    }
}

fn api(client: &Client, (side, _): ConfigurationKey) -> Api<DynamicObject> {
    let resource = match side {
        "Mutating" => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        _ => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
    };
    Api::all_with(client.clone(), &resource)
}

/// Watches a configuration, which has no webhooks while it does not exist.
fn watch_configuration(
    client: &Client,
    key: ConfigurationKey,
) -> impl Stream<Item = (ConfigurationKey, Vec<Hook>)> + use<> {
    let events = watch_object(api(client, key), key.1).backoff(WatchBackoff::default());
    events.filter_map(move |event| {
        let change = match event {
            Ok(object) => Some((key, object.map(hooks).unwrap_or_default())),
            Err(error) => {
                let error = error_text(&error);
                tracing::warn!(configuration = key.1, kind = key.0, error, "watch restarts");
                None
            }
        };
        std::future::ready(change)
    })
}

fn hooks(configuration: DynamicObject) -> Vec<Hook> {
    let webhooks = configuration.data["webhooks"].as_array();
    let hook = |hook: &Value| {
        let bundle = ByteString::deserialize(&hook["clientConfig"]["caBundle"]);
        let rules = hook["rules"].as_array().cloned();
        Hook {
            name: hook["name"].as_str().unwrap_or_default().to_owned(),
            bundle: String::from_utf8_lossy(&bundle.unwrap_or_default().0).into_owned(),
            rules: rules.unwrap_or_default().into(),
            fail: hook["failurePolicy"] != "Ignore",
        }
    };
    webhooks.into_iter().flatten().map(hook).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_applied_manifest_is_completed() {
        let applied = serde_json::from_value(json!({
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
        let patch = patch_for(&hooks(applied)[0], None, &none);
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
