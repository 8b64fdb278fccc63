//! A random object, and a random configuration to apply to it.

use fastrand::Rng;
use serde_json::{Value, json};
use tautline_structured_merge::{Schema, apply, generate};

use super::{KINDS, source};

/// Longer expressions are not compiled.
const SOURCE_BYTES: usize = 16 << 10;

/// An object, and the configuration applied to it.
pub struct Merge {
    pub name: String,
    pub path: &'static str,
    pub live: Value,
    applied: Value,
    pub expression: String,
}

impl Merge {
    /// Of the kinds in turn.
    pub fn make(index: usize, schemas: &[Schema], rng: &mut Rng) -> Self {
        let (schema, (group, kind, path)) = (&schemas[index % 2], KINDS[index % 2]);
        loop {
            let mut live = generate::live(schema, rng);
            let mut applied = generate::configuration(schema, &live, rng);
            let sound = apply(schema, &live, &applied).is_ok();
            // These fields would fail a request before any policy runs.
            for object in [&mut live, &mut applied] {
                let meta = object.get_mut("metadata").and_then(Value::as_object_mut);
                if let Some(meta) = meta {
                    meta.retain(|f, _| !matches!(&**f, "name" | "namespace" | "managedFields"));
                }
            }
            let expression = source::of(schema, &applied);
            if !applied.is_object() || expression.len() > SOURCE_BYTES || !sound && rng.u8(..8) > 0
            {
                continue;
            }
            let name = format!("merge-{index}");
            if !live["metadata"].is_object() {
                live["metadata"] = json!({});
            }
            live["metadata"]["name"] = name.as_str().into();
            live["metadata"]["namespace"] = "merging".into();
            live["apiVersion"] = format!("{group}/v1").trim_start_matches('/').into();
            live["kind"] = kind.into();
            whole(&mut live);
            return Self {
                name,
                path,
                live,
                applied,
                expression,
            };
        }
    }

    /// The whole case, for a failed test.
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.live, self.applied, self.expression)
    }
}

/// Go does not read 80.0 as a whole number, although a policy may contain it.
fn whole(value: &mut Value) {
    match value {
        Value::Number(n) => {
            if let Some(float) = n.as_f64().filter(|f| f.fract() == 0.0) {
                *value = json!(float as i64);
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(whole),
        Value::Object(fields) => fields.values_mut().for_each(whole),
        _ => {}
    }
}
