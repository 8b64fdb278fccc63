//! Checks the port of a backend's engines, which is `config.port` of its workers.

use serde_json::Value;

use super::Backend;
use crate::{FieldError, error::Errors};

/// The backend types whose engines have a port.
const WITH_PORT: [&str; 2] = ["vLLM", "vLLMDisaggregated"];
/// The types of workers that run an engine.
const ENGINES: [&str; 3] = ["server", "prefill", "decode"];
/// The port of a worker that does not set one.
const DEFAULT_PORT: u16 = 8000;

/// Checks each port, and that all workers have the same one.
pub(super) fn review(backend: &Backend<'_>, errors: &mut Errors) {
    if !WITH_PORT.contains(&backend.kind) {
        return;
    }
    let engines = backend.workers.iter();
    let mut first: Option<(String, u16)> = None;
    for worker in engines.filter(|w| ENGINES.contains(&w.kind)) {
        let config = worker.at.field("config");
        let port = match config.raw() {
            None => DEFAULT_PORT,
            Some(value) if !value.is_object() => {
                // The check of KV connectors reports this for other workers.
                if worker.kind == "server" {
                    let detail = "write an object";
                    errors.push(FieldError::invalid(&config.path, value, detail));
                }
                continue;
            }
            Some(value) => match value.get("port") {
                None => DEFAULT_PORT,
                Some(value) => match port(value) {
                    Some(port) => port,
                    None => {
                        let path = config.child_path("port");
                        let detail = "write a whole number from 1 to 65535";
                        errors.push(FieldError::invalid(&path, value, detail));
                        continue;
                    }
                },
            },
        };
        match &first {
            None => first = Some((worker.at.path.clone(), port)),
            Some((path, other)) if *other != port => {
                let detail = format!(
                    "must be the port of all workers; {path} has {other} (the default is {DEFAULT_PORT})"
                );
                let path = config.child_path("port");
                errors.push(FieldError::invalid(&path, &port.into(), detail));
            }
            Some(_) => {}
        }
    }
}

/// Returns the port that a number or text gives; `None` if it is not a whole number from 1 to
/// 65535.
fn port(value: &Value) -> Option<u16> {
    let port: u16 = match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|n| n.fract() == 0.0)?;
            (0.0..=f64::from(u16::MAX))
                .contains(&whole)
                .then_some(whole as u16)?
        }
        Value::String(text) => text.parse().ok()?,
        _ => return None,
    };
    (port > 0).then_some(port)
}
