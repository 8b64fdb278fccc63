use serde_json::{Value, json};

use crate::{
    Kind,
    error::Errors,
    field_ref::FieldRef,
    model::{self, Form},
};

/// Returns RFC 6902 operations that add the defaults of absent fields. A binding has no defaults.
pub fn defaults(kind: Kind, object: &Value) -> Vec<Value> {
    match kind {
        Kind::Model => of_model(object),
        Kind::AutoscalingPolicy => of_policy(object),
        Kind::AutoscalingPolicyBinding => Vec::new(),
    }
}

fn add(path: String, value: Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

fn of_model(object: &Value) -> Vec<Value> {
    let mut patch = Vec::new();
    let errors = &mut Errors::default();
    let spec = FieldRef::root(object).field("spec");
    let (backends, form) = model::backends(&spec, errors);
    if form != Form::List || !model::has_policy(&spec) {
        return patch;
    }
    for (i, backend) in backends.iter().enumerate() {
        if backend.is_present() && !backend.field("scaleToZeroGracePeriod").is_present() {
            let path = format!("/spec/backends/{i}/scaleToZeroGracePeriod");
            patch.push(add(path, "30s".into()));
        }
    }
    if !spec.field("costExpansionRatePercent").is_present() {
        patch.push(add("/spec/costExpansionRatePercent".into(), 200.into()));
    }
    patch
}

fn of_policy(object: &Value) -> Vec<Value> {
    let scale_down = json!({"instances": 0, "percent": 100, "period": "1m",
        "selectPolicy": "Or", "stabilizationWindow": "5m"});
    let stable = json!({"instances": 4, "percent": 100, "period": "1m",
        "selectPolicy": "Or", "stabilizationWindow": "0s"});
    let panic = json!({"percent": 0, "period": "0s",
        "panicThresholdPercent": 200, "panicModeHold": "0s"});
    let scale_up = json!({"stablePolicy": stable, "panicPolicy": panic});
    let behavior = json!({"scaleDown": scale_down, "scaleUp": scale_up});
    if !object.is_object() {
        return Vec::new();
    }
    if object["spec"].is_null() {
        return vec![add("/spec".into(), json!({"behavior": behavior}))];
    }
    let mut part = Part {
        patch: Vec::new(),
        path: "/spec".to_owned(),
    };
    part.within(&object["spec"], "behavior", behavior, |part, given| {
        part.within(given, "scaleDown", scale_down, |part, given| {
            part.within(given, "stabilizationWindow", "5m".into(), |_, _| {});
        });
        part.within(given, "scaleUp", scale_up, |part, given| {
            part.within(given, "stablePolicy", stable, |part, given| {
                part.within(given, "stabilizationWindow", "0s".into(), |_, _| {});
            });
            part.within(given, "panicPolicy", panic, |_, _| {});
        });
    });
    part.patch
}

struct Part {
    patch: Vec<Value>,
    path: String,
}

impl Part {
    /// Adds the default of a field that is absent or an empty object. Otherwise `given` handles the
    /// field's value.
    fn within(
        &mut self,
        here: &Value,
        name: &str,
        default: Value,
        given: impl FnOnce(&mut Self, &Value),
    ) {
        if !here.is_object() {
            return;
        }
        let length = self.path.len();
        self.path += &format!("/{name}");
        let value = &here[name];
        if is_empty(value) {
            self.patch.push(add(self.path.clone(), default));
        } else {
            given(self, value);
        }
        self.path.truncate(length);
    }
}

/// Returns whether Go would decode the value like an absent one: null, or an object of such values.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
