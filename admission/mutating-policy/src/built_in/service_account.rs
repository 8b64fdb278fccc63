//! The plugin `ServiceAccount`, which sets a pod's account, token and pull secrets
//! (plugin/pkg/admission/serviceaccount).

use serde_json::{Map, Value, json};

use super::{list, push, text};
use crate::objects::Objects;

const DEFAULT: &str = "default";
const VOLUME_PREFIX: &str = "kube-api-access-";
/// The name of the token's volume, which the API server ends with five random letters.
const VOLUME: &str = "kube-api-access-xxxxx";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lifetime of a token: an hour and seven seconds, by which the API server recognizes its own
/// tokens.
const TOKEN_EXPIRATION_SECONDS: i64 = 3607;

pub(super) fn admit(
    spec: &mut Map<String, Value>,
    namespace: &str,
    given: &Objects,
    notes: &mut Vec<String>,
) {
    if text(spec, "serviceAccountName").is_empty() {
        spec.insert("serviceAccountName".to_owned(), DEFAULT.into());
    }
    let name = text(spec, "serviceAccountName");
    let account = given.object("v1", "ServiceAccount", Some(namespace), name);
    if account.is_none() && name != DEFAULT {
        notes.push(format!(
            "ServiceAccount {namespace}/{name} is not given, so it counts as one without settings; \
             name its file by -f"
        ));
    }
    let account = account.unwrap_or_default();
    let automount = "automountServiceAccountToken";
    let of_pod = spec.get(automount).and_then(Value::as_bool);
    if of_pod.or(account[automount].as_bool()).unwrap_or(true) {
        mount_token(spec);
    }
    let secrets = account["imagePullSecrets"].as_array();
    if let Some(secrets) = secrets.filter(|s| !s.is_empty())
        && list(spec, "imagePullSecrets").is_empty()
    {
        let names = secrets.iter().map(|s| json!({"name": s["name"]}));
        spec.insert("imagePullSecrets".to_owned(), names.collect());
    }
}

/// Mounts the token in each container that mounts nothing at its path.
fn mount_token(spec: &mut Map<String, Value>) {
    let names = list(spec, "volumes")
        .iter()
        .filter_map(|v| v["name"].as_str());
    let own = names
        .into_iter()
        .find(|name| name.starts_with(VOLUME_PREFIX));
    let own = own.map(str::to_owned);
    let volume = own.as_deref().unwrap_or(VOLUME);
    let mut is_mounted = false;
    for kind in ["initContainers", "containers"] {
        let containers = spec.get_mut(kind).and_then(Value::as_array_mut);
        let containers = containers.into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            let mut mounts = list(container, "volumeMounts").iter();
            if !mounts.any(|mount| mount["mountPath"] == MOUNT_PATH) {
                let mount = json!({"mountPath": MOUNT_PATH, "name": volume, "readOnly": true});
                push(container, "volumeMounts", mount);
                is_mounted = true;
            }
        }
    }
    if is_mounted && own.is_none() {
        push(spec, "volumes", token_volume());
    }
}

fn token_volume() -> Value {
    let namespace = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    json!({"name": VOLUME, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_EXPIRATION_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt",
            "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"fieldRef": namespace, "path": "namespace"}]}},
    ]}})
}
