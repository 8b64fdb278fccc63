//! The copy of the object that mutations change. Before a mutation, only the differences from the
//! object are copied, because a full copy would take longer than most mutations.

use serde_json::{Map, Value};

pub(crate) type JsonObject = Map<String, Value>;

#[derive(Default)]
pub(crate) struct WorkingCopy {
    copy: Value,
    synced: bool,
}

impl WorkingCopy {
    pub fn copy_of(&mut self, object: &Value) -> &mut Value {
        if !std::mem::take(&mut self.synced) {
            sync(&mut self.copy, object);
        }
        &mut self.copy
    }

    pub fn get(&self) -> &Value {
        &self.copy
    }

    pub fn get_mut(&mut self) -> &mut Value {
        self.synced = false;
        &mut self.copy
    }

    pub fn mark_synced(&mut self) {
        self.synced = true;
    }
}

/// Makes `old` equal to `new` without copying equal parts.
pub(crate) fn sync(old: &mut Value, new: &Value) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            if !old.keys().eq(new.keys()) {
                sync_keys(old, new);
            }
            // Both are ordered by name.
            for (old, new) in old.values_mut().zip(new.values()) {
                sync(old, new);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            old.truncate(new.len());
            for (old, new) in old.iter_mut().zip(new) {
                sync(old, new);
            }
            old.extend_from_slice(&new[old.len()..]);
        }
        (old, new) => {
            if old != new {
                *old = new.clone();
            }
        }
    }
}

/// Gives `old` the keys of `new`. The values of common keys are not changed.
pub(crate) fn sync_keys(old: &mut JsonObject, new: &JsonObject) {
    old.retain(|name, _| new.contains_key(name));
    for (name, value) in new {
        if !old.contains_key(name) {
            old.insert(name.clone(), value.clone());
        }
    }
}
