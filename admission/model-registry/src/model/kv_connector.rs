//! Checks the KV connectors of a backend's prefill and decode workers. A connector is JSON text in
//! the field `kv-transfer-config` of a worker's `config`.

use serde_json::Value;

use super::{Backend, Worker};
use crate::{FieldError, error::Errors};

const KEY: &str = "kv-transfer-config";
/// The known connectors, each with its protocol.
const CONNECTORS: [(&str, &str); 4] = [
    ("LMCacheConnectorV1", "LMCache"),
    ("MooncakeConnector", "Mooncake"),
    ("MooncakeConnectorV1", "Mooncake"),
    ("NixlConnector", "Nixl"),
];
/// The types of workers that transfer KV caches, and the roles of their connectors.
const ROLES: [(&str, [&str; 2]); 2] = [
    ("prefill", ["kv_producer", "kv_both"]),
    ("decode", ["kv_consumer", "kv_both"]),
];

/// Checks that there is at most one worker of each type, and that their connectors match.
pub(super) fn review(backend: &Backend<'_>, errors: &mut Errors) {
    let path = backend.at.child_path("workers");
    let mut found = Vec::new();
    for (kind, roles) in ROLES {
        let workers: Vec<&Worker<'_>> = backend.workers.iter().filter(|w| w.kind == kind).collect();
        if workers.len() > 1 {
            let detail = format!("a backend has at most one worker of type {kind}");
            errors.push(FieldError::invalid(&path, &workers.len().into(), detail));
            return;
        }
        let connector = match workers.first() {
            None => None,
            Some(worker) => match connector(worker, roles) {
                Ok(connector) => connector,
                Err(error) => {
                    errors.push(error);
                    return;
                }
            },
        };
        found.push(connector);
    }
    let [prefill, decode] = found.as_slice() else {
        return;
    };
    let detail = match (prefill, decode) {
        (Some((_, ours)), Some((_, theirs))) if ours == theirs => return,
        (None, None) => return,
        (Some((one, _)), Some((other, _))) => {
            format!("prefill has {one} and decode {other}; use one kind of connector for both")
        }
        (Some((name, _)), None) => {
            format!("prefill has {name} and decode has no {KEY}; set it for both or for neither")
        }
        (None, Some((name, _))) => {
            format!("decode has {name} and prefill has no {KEY}; set it for both or for neither")
        }
    };
    let value = Value::from(backend.workers.len());
    errors.push(FieldError::invalid(&path, &value, detail));
}

/// Returns the connector of a worker and its protocol; `None` if the worker has no connector.
fn connector(
    worker: &Worker<'_>,
    roles: [&str; 2],
) -> Result<Option<(&'static str, &'static str)>, FieldError> {
    let config = worker.at.field("config");
    let Some(raw) = config.raw() else {
        return Ok(None);
    };
    let invalid =
        |path: &str, value: &Value, detail: &str| Err(FieldError::invalid(path, value, detail));
    if !raw.is_object() {
        return invalid(&config.path, raw, "write an object");
    }
    let path = format!("{}[{KEY}]", config.path);
    let text = match raw.get(KEY) {
        None | Some(Value::Null) => return Ok(None),
        Some(text) => text,
    };
    let transfer: Option<Value> = text.as_str().and_then(|t| serde_json::from_str(t).ok());
    let Some(transfer) = transfer.filter(Value::is_object) else {
        return invalid(&path, text, "write a JSON object as a text");
    };
    let field = |name: &str| transfer[name].as_str().filter(|t| !t.is_empty());
    let known = CONNECTORS.map(|(name, _)| name);
    let Some(name) = field("kv_connector") else {
        return invalid(
            &path,
            text,
            &format!("kv_connector is missing; use one of {}", known.join(", ")),
        );
    };
    let Some((name, protocol)) = CONNECTORS.iter().find(|(known, _)| *known == name) else {
        return invalid(
            &path,
            text,
            &format!(
                "kv_connector {name:?} is unknown; use one of {}",
                known.join(", ")
            ),
        );
    };
    let [one, both] = roles;
    match field("kv_role") {
        Some(role) if roles.contains(&role) => Ok(Some((name, protocol))),
        Some(role) => invalid(
            &path,
            text,
            &format!(
                "kv_role {role:?} is not one of {one}, {both}, the roles of {}",
                worker.kind
            ),
        ),
        None => invalid(
            &path,
            text,
            &format!("kv_role is missing; use {one} or {both}"),
        ),
    }
}
