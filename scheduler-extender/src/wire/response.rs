//! Writes the JSON responses of the extender's verbs to kube-scheduler: filter, prioritize, preempt
//! and bind.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{json, value::RawValue};

use super::Victims;

#[derive(Serialize)]
pub struct HostPriority<'a> {
    pub host: &'a str,
    pub score: u8,
}

/// Writes the `ExtenderFilterResult` with node names.
pub fn filter_names<'a>(
    names: impl Iterator<Item = &'a str>,
    failed: &[(&'a str, &'a str)],
    unresolvable: &[(&'a str, &'a str)],
) -> Vec<u8> {
    let mut out = br#"{"nodenames":["#.to_vec();
    write_all(&mut out, names, write_text);
    out.push(b']');
    write_failed(&mut out, failed, unresolvable);
    out
}

/// Writes the `ExtenderFilterResult` with unchanged node objects.
pub fn filter_objects<'a>(
    nodes: impl Iterator<Item = &'a RawValue>,
    failed: &[(&'a str, &'a str)],
    unresolvable: &[(&'a str, &'a str)],
) -> Vec<u8> {
    let mut out = br#"{"nodes":{"metadata":{},"items":["#.to_vec();
    let write = |out: &mut Vec<u8>, node: &RawValue| out.extend_from_slice(node.get().as_bytes());
    write_all(&mut out, nodes, write);
    out.extend_from_slice(b"]}");
    write_failed(&mut out, failed, unresolvable);
    out
}

/// Writes values with commas in between.
fn write_all<T>(
    out: &mut Vec<u8>,
    values: impl Iterator<Item = T>,
    write: impl Fn(&mut Vec<u8>, T),
) {
    for (i, value) in values.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(out, value);
    }
}

fn write_failed(out: &mut Vec<u8>, failed: &[(&str, &str)], unresolvable: &[(&str, &str)]) {
    for (key, nodes) in [
        ("failedNodes", failed),
        ("failedAndUnresolvableNodes", unresolvable),
    ] {
        if nodes.is_empty() {
            continue;
        }
        out.extend_from_slice(b",\"");
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":{");
        write_all(out, nodes.iter(), |out, (node, reason)| {
            write_text(out, node);
            out.push(b':');
            write_text(out, reason);
        });
        out.push(b'}');
    }
    out.push(b'}');
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing a string into memory cannot fail.
    _ = serde_json::to_writer(out, text);
}

/// Writes the `ExtenderPreemptionResult`.
pub fn preemption_result(victims: &BTreeMap<String, Victims>) -> Vec<u8> {
    json!({ "nodeNameToMetaVictims": victims })
        .to_string()
        .into_bytes()
}

/// Writes the `ExtenderFilterResult` or `ExtenderBindingResult` with an error.
pub fn error_result(error: &str) -> Vec<u8> {
    json!({ "error": error }).to_string().into_bytes()
}
