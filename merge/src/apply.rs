//! The merge itself, of two values that are what their type says.

use std::collections::{HashMap, HashSet};

use serde_json::{Map as Object, Value};

use crate::{
    MergeError, Schema,
    check::Check,
    element::{Identity, identity},
    scalar::settled,
    types::{Definitions, List, Map, Place, Reference},
};

/// The live object with the configuration merged into it.
///
/// Both are whole objects; the configuration's `apiVersion` and `kind` are the
/// live object's, whatever it says. An empty list or map changes nothing, and
/// neither does a field that is left out. A live object may hold what a
/// configuration may not: nulls, equal elements, and fields that the schema does
/// not declare (a newer API server's), which all stay.
///
/// # Errors
/// The configuration asks for what it may not, or one of the two is not of the
/// schema's type: the first such place.
pub fn apply(schema: &Schema, live: &Value, configuration: &Value) -> Result<Value, MergeError> {
    let definitions = &*schema.definitions;
    let mut check = Check {
        definitions,
        live: false,
        path: Vec::new(),
    };
    let Value::Object(asked) = configuration else {
        return Err(check.error("an apply configuration is an object"));
    };
    let named;
    let configuration = if asked.contains_key("apiVersion") || asked.contains_key("kind") {
        let rest = asked
            .iter()
            .filter(|(k, _)| *k != "apiVersion" && *k != "kind");
        named = Value::Object(rest.map(|(k, v)| (k.clone(), v.clone())).collect());
        &named
    } else {
        configuration
    };
    check.value(schema.place(), configuration, false)?;
    let mut check = Check {
        definitions,
        live: true,
        path: Vec::new(),
    };
    if !live.is_object() {
        return Err(check.error("is no object"));
    }
    check.value(schema.place(), live, false)?;
    Ok(Merge { definitions }.both(schema.place(), live, configuration))
}

struct Merge<'a> {
    definitions: &'a Definitions,
}

impl Merge<'_> {
    fn both(&self, at: Place<'_>, live: &Value, asked: &Value) -> Value {
        match (live, asked, at.map(), at.list()) {
            (Value::Object(live), Value::Object(asked), Some(map), _) if !at.map_is_atomic() => {
                self.maps(map, live, asked)
            }
            (Value::Array(live), Value::Array(asked), _, Some(list)) if !at.list_is_atomic() => {
                self.lists(list, live, asked)
            }
            _ => settled(asked),
        }
    }

    fn referred(&self, is: &Reference, live: &Value, asked: &Value) -> Value {
        match self.definitions.at(is) {
            Ok(at) => self.both(at, live, asked),
            Err(_) => settled(asked),
        }
    }

    fn maps(
        &self,
        map: &Map,
        live: &Object<String, Value>,
        asked: &Object<String, Value>,
    ) -> Value {
        let mut merged = live.clone();
        for (name, asked) in asked {
            let value = match (live.get(name), map.field(name)) {
                (Some(live), Some((is, _))) => self.referred(is, live, asked),
                _ => settled(asked),
            };
            merged.insert(name.clone(), value);
        }
        Value::Object(merged)
    }

    /// The elements of both, in an order that keeps each one's as far as can be:
    /// shared elements come in the configuration's order, the live object's own
    /// before or between them as they stood, the configuration's own where it has
    /// them.
    fn lists(&self, list: &List, live: &[Value], asked: &[Value]) -> Value {
        let identities = |elements: &[Value]| -> Vec<Identity> {
            let of = |element| identity(self.definitions, list, element);
            // All have one: both lists are checked.
            let of = |element| of(element).ok().flatten().unwrap_or_default();
            elements.iter().map(of).collect()
        };
        let (live_ids, asked_ids) = (identities(live), identities(asked));
        // An element that is there twice is merged with nothing.
        let mut unique: HashMap<&str, Option<&Value>> = HashMap::with_capacity(live.len());
        for (id, element) in live_ids.iter().zip(live) {
            let twice = |one: &mut Option<&Value>| *one = None;
            unique.entry(id).and_modify(twice).or_insert(Some(element));
        }
        let in_asked: HashSet<&str> = asked_ids.iter().map(String::as_str).collect();
        let mut shared = asked_ids
            .iter()
            .map(String::as_str)
            .filter(|id| unique.contains_key(id));
        let mut next = shared.next();

        let merge = |id: &str, asked: &Value| match unique.get(id) {
            Some(Some(live)) => self.referred(&list.element, live, asked),
            _ => settled(asked),
        };
        let mut merged = Vec::with_capacity(live.len() + asked.len());
        let mut done: HashSet<&str> = HashSet::with_capacity(asked.len());
        let (mut l, mut a) = (0, 0);
        loop {
            if let (Some(live_id), Some(asked_id)) = (live_ids.get(l), asked_ids.get(a)) {
                if live_id == asked_id {
                    merged.push(merge(asked_id, &asked[a]));
                    done.insert(asked_id);
                    (l, a) = (l + 1, a + 1);
                    next = shared.next();
                    continue;
                }
                // Shared, and another one's turn: it comes where the
                // configuration has it.
                if in_asked.contains(live_id.as_str()) && next.is_some_and(|n| n != live_id) {
                    l += 1;
                    continue;
                }
            }
            if let Some(live_id) = live_ids.get(l) {
                if !in_asked.contains(live_id.as_str()) {
                    merged.push(live[l].clone());
                    l += 1;
                    continue;
                }
                if done.contains(live_id.as_str()) {
                    l += 1;
                }
            }
            if let Some(asked_id) = asked_ids.get(a) {
                merged.push(merge(asked_id, &asked[a]));
                done.insert(asked_id);
                a += 1;
                if next == Some(asked_id) {
                    next = shared.next();
                }
            } else if l >= live_ids.len() {
                return Value::Array(merged);
            }
        }
    }
}
