//! The object as a mutation is making it: a second copy, which is brought in step
//! with the first by what differs. To copy all of it for each mutation would take
//! longer than most mutations do.

use serde_json::{Map, Value};

pub(crate) type JsonObject = Map<String, Value>;

/// A copy of the object, once one is needed.
#[derive(Default)]
pub(crate) struct WorkingCopy {
    copy: Value,
    /// Whether it is as the object is.
    synced: bool,
}

impl WorkingCopy {
    /// A copy of the object, to be changed.
    pub fn copy_of(&mut self, object: &Value) -> &mut Value {
        if !std::mem::take(&mut self.synced) {
            sync(&mut self.copy, object);
        }
        &mut self.copy
    }

    /// The copy as it was left.
    pub fn get(&self) -> &Value {
        &self.copy
    }

    /// The same, to be changed further.
    pub fn get_mut(&mut self) -> &mut Value {
        self.synced = false;
        &mut self.copy
    }

    /// The object has become what this is.
    pub fn mark_synced(&mut self) {
        self.synced = true;
    }
}

/// Makes `old` equal to `new`; what is equal stays where it is.
pub(crate) fn sync(old: &mut Value, new: &Value) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            if !old.keys().eq(new.keys()) {
                sync_keys(old, new);
            }
            // Both are in the order of their names.
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

/// Makes `old` have the fields of `new`; what is in both is left alone.
pub(crate) fn sync_keys(old: &mut JsonObject, new: &JsonObject) {
    old.retain(|name, _| new.contains_key(name));
    for (name, value) in new {
        if !old.contains_key(name) {
            old.insert(name.clone(), value.clone());
        }
    }
}
