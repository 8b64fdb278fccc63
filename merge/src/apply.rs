//! The merge itself, of two values that are what their type says.

use std::collections::HashMap;

use serde_json::{Map as Object, Value};

use crate::{
    MergeError, Schema,
    check::{Check, OWN},
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
    if !configuration.is_object() {
        return Err(check.error("an apply configuration is an object"));
    }
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
    let mut merged = Merge { definitions }.both(schema.place(), live, configuration);
    if let Value::Object(fields) = &mut merged {
        for name in OWN {
            match live.get(name) {
                Some(own) => fields.insert(name.to_owned(), own.clone()),
                None => fields.remove(name),
            };
        }
    }
    Ok(merged)
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
        let both = live.iter().map(|(name, live)| {
            let value = match (asked.get(name), map.field(name)) {
                (None, _) => live.clone(),
                (Some(asked), Some((is, _))) => self.referred(is, live, asked),
                (Some(asked), None) => settled(asked),
            };
            (name.clone(), value)
        });
        let new = asked.iter().filter(|(name, _)| !live.contains_key(*name));
        let new = new.map(|(name, asked)| (name.clone(), settled(asked)));
        let merged = both.chain(new).collect();
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
        let places = asked_ids.iter().enumerate();
        let places: HashMap<&str, usize> = places.map(|(a, id)| (id.as_str(), a)).collect();
        let mut shared = (0..asked.len()).filter(|a| unique.contains_key(asked_ids[*a].as_str()));
        let mut turn = shared.next();

        let merge = |a: usize| match unique.get(asked_ids[a].as_str()) {
            Some(Some(live)) => self.referred(&list.element, live, &asked[a]),
            _ => settled(&asked[a]),
        };
        let mut merged = Vec::with_capacity(live.len() + asked.len());
        let (mut l, mut a) = (0, 0);
        while l < live.len() || a < asked.len() {
            match live_ids.get(l).map(|id| places.get(id.as_str())) {
                Some(None) => {
                    merged.push(live[l].clone());
                    l += 1;
                    continue;
                }
                Some(Some(place)) if *place == a => {
                    merged.push(merge(a));
                    (l, a) = (l + 1, a + 1);
                    turn = shared.next();
                    continue;
                }
                // Shared, and another one's turn: it comes, or came, where the
                // configuration has it.
                Some(Some(place)) if a < asked.len() && turn.is_some_and(|turn| turn != *place) => {
                    l += 1;
                    continue;
                }
                // There twice, and already placed.
                Some(Some(place)) if *place < a => l += 1,
                _ => {}
            }
            if a < asked.len() {
                merged.push(merge(a));
                a += 1;
            }
        }
        Value::Array(merged)
    }
}
