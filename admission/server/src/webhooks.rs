//! Generates the webhook configurations, which are also in `deploy/webhooks/`.

use serde_json::{Value, json};
use tautline_core::names::{EXEMPT_NAMESPACES, GROUP, SECOND_SCHEDULER_LABEL};

/// The namespaces that are exempt from all webhooks: the server's namespace, so that its pods can
/// start, and `kube-system`.
const EXEMPT: [&str; 2] = EXEMPT_NAMESPACES;

/// The address at which the API server calls the webhooks.
#[derive(Clone, Debug)]
pub enum Address {
    /// A Service at port 443.
    Service {
        /// The namespace of the Service, whose objects the webhooks leave out.
        namespace: String,
        /// The name of the Service.
        name: String,
    },
    /// A base URL, to which the paths are appended: `https://HOST:PORT`.
    Url(String),
}

/// The webhook of mutation policies, whose rules and failurePolicy the server writes.
pub(crate) const POLICIES: &str = "mutation-policies.tautline.io";

/// A webhook. Webhooks with the same file and configuration follow each other in [`HOOKS`].
struct Hook {
    file: &'static str,
    mutating: bool,
    configuration: &'static str,
    name: &'static str,
    path: &'static str,
    /// The API groups with the resources; empty if the server writes the rules and failurePolicy.
    groups: &'static [&'static str],
    version: &'static str,
    resources: &'static [&'static str],
    operations: &'static [&'static str],
    fail: bool,
    timeout_secs: u8,
    reinvoke: bool,
    cluster_scoped: bool,
    /// The label with which a namespace opts out, by the value `disabled`.
    opt_out_label: Option<&'static str>,
}

/// The creation of pods.
const PODS: Hook = Hook {
    file: "",
    mutating: true,
    configuration: "",
    name: "",
    path: "",
    groups: &[""],
    version: "v1",
    resources: &["pods"],
    operations: &["CREATE"],
    fail: false,
    timeout_secs: 10,
    reinvoke: true,
    cluster_scoped: false,
    opt_out_label: None,
};

/// The creation and update of Tautline's own objects.
const OWN: Hook = Hook {
    file: "own-resources.yaml",
    configuration: "tautline-own-resources",
    groups: &[GROUP],
    version: "v1alpha1",
    operations: &["CREATE", "UPDATE"],
    reinvoke: false,
    ..PODS
};

/// The creation and update of objects of the model registry, in its former and its current group.
const MODELS: Hook = Hook {
    file: "model-registry.yaml",
    configuration: "tautline-model-registry",
    groups: &["registry.volcano.sh", "workload.serving.volcano.sh"],
    fail: true,
    timeout_secs: 30,
    reinvoke: true,
    ..OWN
};

/// The former and the current name of the registry's models.
const MODEL: &[&str] = &["models", "modelboosters"];

const HOOKS: [Hook; 11] = [
    Hook {
        name: "default.constraint.tautline.io",
        path: "/mutate-constraint",
        resources: &["constraintpolicies", "constraintpolicyoffers"],
        ..OWN
    },
    Hook {
        mutating: false,
        name: "validate.constraint.tautline.io",
        path: "/validate-constraint",
        resources: &[
            "constraintpolicies",
            "constraintpolicyoffers",
            "constraintpolicybindings",
        ],
        ..OWN
    },
    Hook {
        mutating: false,
        name: "validate.mutation.tautline.io",
        path: "/validate-constraint",
        groups: &["tautline.io"],
        resources: &["mutationpolicies", "mutationpolicybindings"],
        // A policy that does not compile could refuse every pod.
        fail: true,
        cluster_scoped: true,
        ..OWN
    },
    Hook {
        file: "gpu-slices.yaml",
        configuration: "tautline-gpu-slices",
        name: "gpu-slices.tautline.io",
        path: "/mutate-v1-pod",
        ..PODS
    },
    Hook {
        file: "mutation-policies.yaml",
        configuration: "tautline-mutation-policies",
        name: POLICIES,
        path: "/mutate-policies",
        // A manifest with the server's fields would conflict when applied again.
        groups: &[],
        ..PODS
    },
    Hook {
        name: "default.model.registry.tautline.io",
        path: "/mutate-registry-volcano-sh-v1alpha1-model",
        resources: MODEL,
        ..MODELS
    },
    Hook {
        name: "default.autoscalingpolicy.registry.tautline.io",
        path: "/mutate-registry-volcano-sh-v1alpha1-autoscalingpolicy",
        resources: &["autoscalingpolicies"],
        ..MODELS
    },
    Hook {
        mutating: false,
        name: "validate.model.registry.tautline.io",
        path: "/validate-registry-volcano-sh-v1alpha1-model",
        resources: MODEL,
        ..MODELS
    },
    Hook {
        mutating: false,
        name: "validate.autoscalingpolicy.registry.tautline.io",
        path: "/validate-registry-volcano-sh-v1alpha1-autoscalingpolicy",
        resources: &["autoscalingpolicies"],
        ..MODELS
    },
    Hook {
        mutating: false,
        name: "validate.autoscalingpolicybinding.registry.tautline.io",
        path: "/validate-registry-volcano-sh-v1alpha1-autoscalingpolicybinding",
        resources: &["autoscalingpolicybindings"],
        ..MODELS
    },
    Hook {
        file: "governed.yaml",
        configuration: "tautline-governed",
        name: "governed.tautline.io",
        path: "/mutate-governed",
        opt_out_label: Some(SECOND_SCHEDULER_LABEL),
        ..PODS
    },
];

/// The type of a webhook configuration, `Mutating` or `Validating`, and its name.
pub(crate) type ConfigurationKey = (&'static str, &'static str);

impl Hook {
    fn key(&self) -> ConfigurationKey {
        let side = if self.mutating {
            "Mutating"
        } else {
            "Validating"
        };
        (side, self.configuration)
    }
}

/// Returns all webhook configurations.
pub(crate) fn configurations() -> impl Iterator<Item = ConfigurationKey> {
    HOOKS
        .chunk_by(|a, b| a.key() == b.key())
        .map(|hooks| hooks[0].key())
}

/// The name of a file and the webhook configurations in it.
pub type File = (&'static str, Vec<Value>);

/// Returns all webhook configurations, without the fields that the server writes, such as
/// `caBundle`.
pub fn files(address: &Address) -> Vec<File> {
    let files = HOOKS.chunk_by(|a, b| a.file == b.file);
    let documents = |hooks: &[Hook]| {
        let documents = hooks.chunk_by(|a, b| a.key() == b.key());
        documents.map(|hooks| document(hooks, address)).collect()
    };
    files
        .map(|hooks| (hooks[0].file, documents(hooks)))
        .collect()
}

fn document(hooks: &[Hook], address: &Address) -> Value {
    let (side, name) = hooks[0].key();
    let webhooks: Vec<Value> = hooks.iter().map(|h| webhook(h, address)).collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{side}WebhookConfiguration"),
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "tautline"}},
        "webhooks": webhooks,
    })
}

fn webhook(hook: &Hook, address: &Address) -> Value {
    let client = match address {
        Address::Service { namespace, name } => {
            json!({"service": {"namespace": namespace, "name": name, "path": hook.path, "port": 443}})
        }
        Address::Url(base) => {
            json!({"url": format!("{}{}", base.trim_end_matches('/'), hook.path)})
        }
    };
    let mut exempt = EXEMPT.to_vec();
    if let Address::Service { namespace, .. } = address
        && !exempt.contains(&namespace.as_str())
    {
        exempt.push(namespace);
    }
    let mut selector = vec![json!({
        "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": exempt,
    })];
    let opt_out = |label| json!({"key": label, "operator": "NotIn", "values": ["disabled"]});
    selector.extend(hook.opt_out_label.map(opt_out));
    let mut webhook = json!({
        "name": hook.name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": selector},
        "sideEffects": "None",
        "timeoutSeconds": hook.timeout_secs,
    });
    let rule = |group: &&str| {
        json!({
            "apiGroups": [group], "apiVersions": [hook.version],
            "resources": hook.resources, "operations": hook.operations,
            "scope": if hook.cluster_scoped { "Cluster" } else { "Namespaced" },
        })
    };
    if !hook.groups.is_empty() {
        webhook["rules"] = hook.groups.iter().map(rule).collect();
        webhook["failurePolicy"] = if hook.fail { "Fail" } else { "Ignore" }.into();
    }
    if hook.mutating {
        webhook["reinvocationPolicy"] = if hook.reinvoke { "IfNeeded" } else { "Never" }.into();
    }
    webhook
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn service() -> Address {
        Address::Service {
            namespace: "tautline-system".into(),
            name: "tautline-admission".into(),
        }
    }

    #[test]
    fn configurations_are_known_and_names_unique() {
        let mut names = BTreeSet::new();
        for document in files(&service()).into_iter().flat_map(|(_, d)| d) {
            let name = document["metadata"]["name"].as_str().unwrap();
            let kind = document["kind"].as_str().unwrap();
            let side = kind.strip_suffix("WebhookConfiguration").unwrap();
            assert_eq!(
                configurations().filter(|c| *c == (side, name)).count(),
                1,
                "{name}"
            );
            for hook in document["webhooks"].as_array().unwrap() {
                let name = hook["name"].as_str().unwrap().to_owned();
                assert!(names.insert(name), "{hook}");
                let exempt = &hook["namespaceSelector"]["matchExpressions"][0]["values"];
                assert_eq!(*exempt, json!(EXEMPT));
            }
        }
    }

    #[test]
    fn manifests_lack_fields_that_the_server_writes() {
        for document in files(&service()).into_iter().flat_map(|(_, d)| d) {
            for hook in document["webhooks"].as_array().unwrap() {
                let follows = hook["name"] == POLICIES;
                for field in ["rules", "failurePolicy"] {
                    assert_eq!(hook.get(field).is_none(), follows, "{hook}");
                }
                assert!(hook["clientConfig"].get("caBundle").is_none(), "{hook}");
            }
        }
    }

    #[test]
    fn urls_replace_services_and_the_own_namespace_is_exempt() {
        let of = |address: &Address| files(address)[1].1[0]["webhooks"][0].clone();
        let url = of(&Address::Url("https://127.0.0.1:8443/".into()));
        assert_eq!(
            url["clientConfig"]["url"],
            "https://127.0.0.1:8443/mutate-v1-pod"
        );
        let there = of(&Address::Service {
            namespace: "limits".into(),
            name: "a".into(),
        });
        let values = there["namespaceSelector"]["matchExpressions"][0]["values"]
            .as_array()
            .unwrap();
        assert!(values.contains(&json!("limits")), "{values:?}");
    }
}
