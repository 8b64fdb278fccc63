//! An object and its CEL value, which is converted once and updated in place.

use std::cell::OnceCell;
use std::sync::Arc;

use serde_json::Value as Json;
use tautline_cel::{Key, Map, Value};

use crate::working_copy::{JsonObject, sync, sync_keys};

/// An object whose CEL value is converted when an expression first uses it.
pub(crate) struct LazyValue {
    pub json: Arc<Json>,
    value: OnceCell<Value>,
}

impl LazyValue {
    pub fn new(json: Arc<Json>) -> Self {
        let value = OnceCell::new();
        Self { json, value }
    }

    /// Replaces the object with `json`. Equal parts of the value are reused.
    pub fn update(&mut self, json: &Json) {
        let mine = Arc::make_mut(&mut self.json);
        match self.value.get() {
            None => sync(mine, json),
            Some(value) => {
                if let Some(value) = update_value(mine, json, value) {
                    self.value = value.into();
                }
            }
        }
    }

    pub fn value(&self) -> Value {
        self.value.get_or_init(|| (&*self.json).into()).clone()
    }
}

/// Makes `old` equal to `new` and returns its value, which shares the equal parts with
/// the value of `old`; `None` if everything is equal. Each part is visited once.
fn update_value(old: &mut Json, new: &Json, value: &Value) -> Option<Value> {
    match (old, new, value) {
        (Json::Object(old), Json::Object(new), Value::Map(values)) => {
            if !old.keys().eq(new.keys()) {
                return Some(update_fields(old, new, values));
            }
            let mut updated: Option<Map> = None;
            let all = old.values_mut().zip(new.values()).zip(values.iter());
            for ((old, new), (key, value)) in all {
                if let Some(value) = update_value(old, new, value) {
                    let updated = updated.get_or_insert_with(|| Map::clone(values));
                    updated.insert(key.clone(), value);
                }
            }
            updated.map(Value::map)
        }
        (Json::Array(old), Json::Array(new), Value::List(values)) => {
            let mut updated: Option<Vec<Value>> = None;
            if old.len() > new.len() {
                old.truncate(new.len());
                updated = Some(values.iter().take(new.len()).cloned().collect());
            }
            for (i, (old, new)) in old.iter_mut().zip(new).enumerate() {
                let value = values
                    .get(i)
                    .and_then(|value| update_value(old, new, value));
                if let Some(value) = value {
                    updated.get_or_insert_with(|| Vec::clone(values))[i] = value;
                }
            }
            for new in &new[old.len()..] {
                let updated = updated.get_or_insert_with(|| Vec::clone(values));
                updated.push(new.into());
                old.push(new.clone());
            }
            updated.map(Value::list)
        }
        (old, new, _) => (old != new).then(|| {
            old.clone_from(new);
            new.into()
        }),
    }
}

/// Does the same as [`update_value`] for objects with different field names.
fn update_fields(old: &mut JsonObject, new: &JsonObject, values: &Map) -> Value {
    // All three maps are ordered by name.
    let mut olds = old.iter_mut().zip(values.iter()).peekable();
    let entries = new.iter().map(|(name, new)| {
        while olds.next_if(|((old, _), _)| *old < name).is_some() {}
        match olds.next_if(|((old, _), _)| *old == name) {
            Some(((_, old), (key, value))) => {
                let updated = update_value(old, new, value);
                (key.clone(), updated.unwrap_or_else(|| value.clone()))
            }
            None => (Key::String(name.as_str().into()), new.into()),
        }
    });
    let updated = Value::map(entries.collect());
    sync_keys(old, new);
    updated
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn json() -> impl proptest::strategy::Strategy<Value = Json> {
        use proptest::prelude::*;
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            (0..3).prop_map(Json::from),
            "[ab]?".prop_map(Json::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Json::from),
                proptest::collection::btree_map("[abc]", inner, 0..3)
                    .prop_map(|m| Json::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest::proptest! {
        #[test]
        fn updated_value_equals_a_new_one(old in json(), new in json()) {
            let mut lazy = LazyValue::new(Arc::new(json!({"a": old, "b": new})));
            for json in [json!({"a": new, "b": new}), json!({"a": new, "b": old})] {
                lazy.value();
                lazy.update(&json);
                proptest::prop_assert_eq!(&*lazy.json, &json);
                let expected: Value = (&json).into();
                proptest::prop_assert_eq!(format!("{:?}", lazy.value()), format!("{expected:?}"));
            }
        }
    }
}
