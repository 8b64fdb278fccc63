//! The object as a mutation is making it: a second copy, which is brought in step
//! with the first by what differs. To copy all of it for each mutation would take
//! longer than most mutations do.

use serde_json::{Map, Value};

pub(crate) type Fields = Map<String, Value>;

/// A copy of the object, once one is needed.
#[derive(Default)]
pub(crate) struct Draft {
    copy: Value,
    /// Whether it is as the object is.
    in_step: bool,
}

impl Draft {
    /// A copy of the object, to be changed.
    pub fn of(&mut self, object: &Value) -> &mut Value {
        if !std::mem::take(&mut self.in_step) {
            catch_up(&mut self.copy, object);
        }
        &mut self.copy
    }

    /// The copy as it was left.
    pub fn made(&self) -> &Value {
        &self.copy
    }

    /// The same, to be changed further.
    pub fn made_mut(&mut self) -> &mut Value {
        self.in_step = false;
        &mut self.copy
    }

    /// The object has become what this is.
    pub fn taken(&mut self) {
        self.in_step = true;
    }
}

/// Makes `old` equal to `new`; what is equal stays where it is.
pub(crate) fn catch_up(old: &mut Value, new: &Value) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            if !old.keys().eq(new.keys()) {
                same_names(old, new);
            }
            // Both are in the order of their names.
            for (old, new) in old.values_mut().zip(new.values()) {
                catch_up(old, new);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            old.truncate(new.len());
            for (old, new) in old.iter_mut().zip(new) {
                catch_up(old, new);
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
pub(crate) fn same_names(old: &mut Fields, new: &Fields) {
    old.retain(|name, _| new.contains_key(name));
    for (name, value) in new {
        if !old.contains_key(name) {
            old.insert(name.clone(), value.clone());
        }
    }
}
