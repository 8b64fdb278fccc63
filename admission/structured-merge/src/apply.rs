//! Merges an apply configuration into a live object by the object's schema, as server-side apply
//! does.

use std::collections::HashMap;

use serde_json::{Map as Object, Value};

use crate::{
    MergeError, Schema,
    check::{Checker, IDENTITY_FIELDS},
    element::{Identity, identity},
    scalar::normalized,
    types::{Definitions, List, Map, Reference, TypeRef},
};

/// Merges the configuration into the live object, whose `apiVersion` and `kind` do not change. An
/// empty or absent list or map changes nothing. Unlike a configuration, a live object may hold
/// nulls, equal elements, and undeclared fields (of a newer API server), which remain. The error is
/// the first invalid place.
pub fn apply(schema: &Schema, live: &Value, configuration: &Value) -> Result<Value, MergeError> {
    let definitions = &*schema.definitions;
    let checker = |live| Checker {
        definitions,
        live,
        path: Vec::new(),
    };
    let Value::Object(fields) = configuration else {
        return Err(checker(false).error("an apply configuration is an object"));
    };
    checker(false).value(schema.type_ref(), configuration, false)?;
    if !live.is_object() {
        return Err(checker(true).error("is no object"));
    }
    // The check bounds the depth and so comes before the clone, which is recursive, too.
    checker(true).value(schema.type_ref(), live, false)?;
    let mut fields = fields.clone();
    fields.retain(|name, _| !IDENTITY_FIELDS.contains(&name.as_str()));
    let mut merged = live.clone();
    Merge { definitions }.merge(schema.type_ref(), &mut merged, Value::Object(fields));
    Ok(merged)
}

struct Merge<'a> {
    definitions: &'a Definitions,
}

enum ElementSource {
    /// The live element at an index.
    Live(usize),
    /// The configured element at an index, merged with the live element at another index if exactly
    /// one is equal.
    Configured(usize, Option<usize>),
}

impl Merge<'_> {
    fn merge(&self, at: TypeRef<'_>, live: &mut Value, configured: Value) {
        match (live, configured, at.map(), at.list()) {
            (Value::Object(live), Value::Object(configured), Some(map), _)
                if !at.map_is_atomic() =>
            {
                self.maps(map, live, configured);
            }
            (Value::Array(live), Value::Array(configured), _, Some(list))
                if !at.list_is_atomic() =>
            {
                self.lists(list, live, configured);
            }
            (live, configured, ..) => *live = normalized(configured),
        }
    }

    fn referred(&self, is: &Reference, live: &mut Value, configured: Value) {
        match self.definitions.at(is) {
            Ok(at) => self.merge(at, live, configured),
            Err(_) => *live = normalized(configured),
        }
    }

    fn maps(&self, map: &Map, live: &mut Object<String, Value>, configured: Object<String, Value>) {
        for (name, configured) in configured {
            match (live.get_mut(&name), map.field(&name)) {
                (Some(live), Some((is, _))) => self.referred(is, live, configured),
                (Some(live), None) => *live = normalized(configured),
                (None, _) => {
                    live.insert(name, normalized(configured));
                }
            }
        }
    }

    fn lists(&self, list: &List, live: &mut Vec<Value>, mut configured: Vec<Value>) {
        let order = self.order(list, live, &configured);
        // Each element is taken once: a configured element with two equal live ones is not merged.
        let mut take = |from: &ElementSource| match *from {
            ElementSource::Live(l) => live[l].take(),
            ElementSource::Configured(a, None) => normalized(configured[a].take()),
            ElementSource::Configured(a, Some(l)) => {
                let mut element = live[l].take();
                self.referred(&list.element, &mut element, configured[a].take());
                element
            }
        };
        *live = order.iter().map(&mut take).collect();
    }

    /// Returns the order of the merged list. Shared elements come in the configuration's order,
    /// live elements keep their places before or between them, and new elements come where the
    /// configuration has them.
    fn order(&self, list: &List, live: &[Value], configured: &[Value]) -> Vec<ElementSource> {
        let of = |element| identity(self.definitions, list, element);
        // Both lists are valid, so all elements have an identity.
        let of = |element| of(element).ok().flatten().unwrap_or_default();
        let live_ids: Vec<Identity<'_>> = live.iter().map(of).collect();
        let configured_ids: Vec<Identity<'_>> = configured.iter().map(of).collect();
        let mut unique: HashMap<&str, Option<usize>> = HashMap::with_capacity(live.len());
        for (l, id) in live_ids.iter().enumerate() {
            let twice = |one: &mut Option<usize>| *one = None;
            unique.entry(id).and_modify(twice).or_insert(Some(l));
        }
        let places = configured_ids.iter().enumerate();
        let places: HashMap<&str, usize> = places.map(|(a, id)| (&**id, a)).collect();
        let mut shared =
            (0..configured.len()).filter(|a| unique.contains_key(&*configured_ids[*a]));
        let mut turn = shared.next();

        let merge = |a: usize| {
            ElementSource::Configured(a, unique.get(&*configured_ids[a]).copied().flatten())
        };
        let mut merged = Vec::with_capacity(live.len() + configured.len());
        let (mut l, mut a) = (0, 0);
        while l < live.len() || a < configured.len() {
            match live_ids.get(l).map(|id| places.get(&**id)) {
                Some(None) => {
                    merged.push(ElementSource::Live(l));
                    l += 1;
                    continue;
                }
                Some(Some(place)) if *place == a => {
                    merged.push(merge(a));
                    (l, a) = (l + 1, a + 1);
                    turn = shared.next();
                    continue;
                }
                // The live element is shared, but another shared element comes first.
                Some(Some(place))
                    if a < configured.len() && turn.is_some_and(|turn| turn != *place) =>
                {
                    l += 1;
                    continue;
                }
                // The live element occurs twice and is already placed.
                Some(Some(place)) if *place < a => l += 1,
                _ => {}
            }
            if a < configured.len() {
                merged.push(merge(a));
                a += 1;
            }
        }
        merged
    }
}
