//! Webhook configurations, both kinds in one form.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
    WebhookClientConfig,
};
use kube::ResourceExt;

use crate::doctor::cluster::{Webhook, WebhookConfiguration};

pub(super) fn is_ours<K: ResourceExt>(configuration: &K) -> bool {
    let part_of = configuration.labels().get("app.kubernetes.io/part-of");
    part_of.is_some_and(|p| p == "tautline") || configuration.name_any().starts_with("tautline-")
}

pub(in crate::doctor) fn mutating(
    configuration: &MutatingWebhookConfiguration,
) -> WebhookConfiguration {
    let hooks = configuration.webhooks.iter().flatten();
    WebhookConfiguration {
        kind: "MutatingWebhookConfiguration",
        name: configuration.name_any(),
        hooks: hooks
            .map(|h| {
                webhook(
                    &h.name,
                    &h.client_config,
                    h.failure_policy.as_deref(),
                    &h.rules,
                )
            })
            .collect(),
    }
}

pub(in crate::doctor) fn validating(
    configuration: &ValidatingWebhookConfiguration,
) -> WebhookConfiguration {
    let hooks = configuration.webhooks.iter().flatten();
    WebhookConfiguration {
        kind: "ValidatingWebhookConfiguration",
        name: configuration.name_any(),
        hooks: hooks
            .map(|h| {
                webhook(
                    &h.name,
                    &h.client_config,
                    h.failure_policy.as_deref(),
                    &h.rules,
                )
            })
            .collect(),
    }
}

fn webhook(
    name: &str,
    client: &WebhookClientConfig,
    failure_policy: Option<&str>,
    rules: &Option<Vec<RuleWithOperations>>,
) -> Webhook {
    let service = client.service.as_ref();
    Webhook {
        name: name.to_owned(),
        ca_bundle: client.ca_bundle.iter().flat_map(|b| b.0.clone()).collect(),
        service: service.map(|s| (s.namespace.clone(), s.name.clone(), s.port.unwrap_or(443))),
        // The API server's default is Fail.
        fail: failure_policy.is_none_or(|p| p == "Fail")
            && rules.as_ref().is_some_and(|r| !r.is_empty()),
    }
}
