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

pub(crate) const MUTATING: [&str; 5] = [
    "tautline-own-resources",
    "tautline-gpu-slices",
    "tautline-mutation-policies",
    "tautline-model-registry",
    "tautline-governed",
];
/// The webhook of mutation policies, with their rules and failurePolicy.
pub(crate) const POLICIES: &str = "mutation-policies.tautline.io";
pub(crate) const VALIDATING: [&str; 2] = ["tautline-own-resources", "tautline-model-registry"];

const CONSTRAINT: &str = GROUP;
const REGISTRY: &str = "registry.volcano.sh";
const CURRENT_REGISTRY: &str = "workload.serving.volcano.sh";

struct Hook {
    name: &'static str,
    path: &'static str,
    group: &'static str,
    versions: &'static str,
    resources: &'static [&'static str],
    operations: &'static [&'static str],
    fail: bool,
    seconds: u8,
    reinvoke: bool,
    cluster: bool,
}

const BOTH: &[&str] = &["CREATE", "UPDATE"];

const PODS: Hook = Hook {
    name: "",
    path: "",
    group: "",
    versions: "v1",
    resources: &["pods"],
    operations: &["CREATE"],
    fail: false,
    seconds: 10,
    reinvoke: false,
    cluster: false,
};

const OWN: Hook = Hook {
    group: CONSTRAINT,
    versions: "v1alpha1",
    operations: BOTH,
    ..PODS
};

const MODELS: Hook = Hook {
    group: REGISTRY,
    versions: "v1alpha1",
    operations: BOTH,
    fail: true,
    seconds: 30,
    reinvoke: true,
    ..PODS
};

/// The name of a file and the webhook configurations in it.
pub type File = (&'static str, Vec<Value>);

/// Returns all webhook configurations, without the fields that the server writes, such as
/// `caBundle`.
pub fn files(address: &Address) -> Vec<File> {
    let mutating = |config: &str, hooks: &[Hook]| configuration(true, config, hooks, address);
    let validating = |config: &str, hooks: &[Hook]| configuration(false, config, hooks, address);
    let own = vec![
        mutating(
            MUTATING[0],
            &[Hook {
                name: "default.constraint.tautline.io",
                path: "/mutate-constraint",
                resources: &["constraintpolicies", "constraintpolicyoffers"],
                ..OWN
            }],
        ),
        validating(
            VALIDATING[0],
            &[
                Hook {
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
                    name: "validate.mutation.tautline.io",
                    path: "/validate-constraint",
                    group: "tautline.io",
                    resources: &["mutationpolicies", "mutationpolicybindings"],
                    // A policy that does not compile could refuse every pod.
                    fail: true,
                    cluster: true,
                    ..OWN
                },
            ],
        ),
    ];
    let mut policies = mutating(
        MUTATING[2],
        &[Hook {
            name: POLICIES,
            path: "/mutate-policies",
            reinvoke: true,
            ..PODS
        }],
    );
    // A manifest with the server's fields would conflict when applied again.
    if let Some(hook) = policies["webhooks"][0].as_object_mut() {
        hook.retain(|field, _| !matches!(field.as_str(), "rules" | "failurePolicy"));
    }
    let slices = mutating(
        MUTATING[1],
        &[Hook {
            name: "gpu-slices.tautline.io",
            path: "/mutate-v1-pod",
            reinvoke: true,
            ..PODS
        }],
    );
    let mut governed = mutating(
        MUTATING[4],
        &[Hook {
            name: "governed.tautline.io",
            path: "/mutate-governed",
            reinvoke: true,
            ..PODS
        }],
    );
    let selector = &mut governed["webhooks"][0]["namespaceSelector"]["matchExpressions"];
    if let Some(expressions) = selector.as_array_mut() {
        expressions.push(json!({
            "key": SECOND_SCHEDULER_LABEL, "operator": "NotIn", "values": ["disabled"],
        }));
    }
    vec![
        ("own-resources.yaml", own),
        ("gpu-slices.yaml", vec![slices]),
        ("mutation-policies.yaml", vec![policies]),
        ("model-registry.yaml", registry(address)),
        ("governed.yaml", vec![governed]),
    ]
}

fn registry(address: &Address) -> Vec<Value> {
    let kinds: [(&[&str], [&str; 2], &str); 3] = [
        (
            &["models"],
            [
                "/mutate-registry-volcano-sh-v1alpha1-model",
                "/validate-registry-volcano-sh-v1alpha1-model",
            ],
            "model",
        ),
        (
            &["autoscalingpolicies"],
            [
                "/mutate-registry-volcano-sh-v1alpha1-autoscalingpolicy",
                "/validate-registry-volcano-sh-v1alpha1-autoscalingpolicy",
            ],
            "autoscalingpolicy",
        ),
        (
            &["autoscalingpolicybindings"],
            [
                "",
                "/validate-registry-volcano-sh-v1alpha1-autoscalingpolicybinding",
            ],
            "autoscalingpolicybinding",
        ),
    ];
    let of = |side: usize, verb: &str| -> Vec<Value> {
        let sides = kinds.iter().filter(|k| !k.1[side].is_empty());
        let one =
            |(resources, paths, kind): &(&'static [&'static str], [&'static str; 2], &str)| {
                let mut hook = webhook(
                    side == 0,
                    &Hook {
                        path: paths[side],
                        resources,
                        ..MODELS
                    },
                    address,
                );
                hook["name"] = format!("{verb}.{kind}.registry.tautline.io").into();
                // ModelBooster is the current name of Model, in the current group.
                let mut current: Vec<Value> = resources.iter().map(|r| json!(*r)).collect();
                if *kind == "model" {
                    current.push(json!("modelboosters"));
                    hook["rules"][0]["resources"] = json!(current);
                }
                let mut rule = hook["rules"][0].clone();
                rule["apiGroups"] = json!([CURRENT_REGISTRY]);
                rule["resources"] = json!(current);
                if let Some(rules) = hook["rules"].as_array_mut() {
                    rules.push(rule);
                }
                hook
            };
        sides.map(one).collect()
    };
    vec![
        document(true, MUTATING[3], of(0, "default")),
        document(false, VALIDATING[1], of(1, "validate")),
    ]
}

fn configuration(mutating: bool, config: &str, hooks: &[Hook], address: &Address) -> Value {
    let hooks = hooks.iter().map(|h| webhook(mutating, h, address));
    document(mutating, config, hooks.collect())
}

fn document(mutating: bool, name: &str, webhooks: Vec<Value>) -> Value {
    let side = if mutating { "Mutating" } else { "Validating" };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{side}WebhookConfiguration"),
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "tautline"}},
        "webhooks": webhooks,
    })
}

fn webhook(mutating: bool, hook: &Hook, address: &Address) -> Value {
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
    let mut webhook = json!({
        "name": hook.name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "rules": [{
            "apiGroups": [hook.group], "apiVersions": [hook.versions],
            "resources": hook.resources, "operations": hook.operations,
            "scope": if hook.cluster { "Cluster" } else { "Namespaced" },
        }],
        "failurePolicy": if hook.fail { "Fail" } else { "Ignore" },
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [{
            "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": exempt,
        }]},
        "sideEffects": "None",
        "timeoutSeconds": hook.seconds,
    });
    if mutating {
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
            let known: &[&str] = match document["kind"].as_str().unwrap() {
                "MutatingWebhookConfiguration" => &MUTATING,
                _ => &VALIDATING,
            };
            assert!(known.contains(&name), "{name}");
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
