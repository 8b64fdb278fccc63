//! Merges an apply configuration into a live object by the object's schema, as server-side apply
//! does.

use std::collections::HashMap;

use serde_json::{Map as Object, Value};

use crate::{
    MergeError, Schema,
    check::{Checker, IDENTITY_FIELDS},
    element::{Identity, identity},
    scalar::{normalized, normalizes_to},
    types::{Definitions, List, Map, Reference, TypeRef},
};

/// Merges the configuration into the live object, whose `apiVersion` and `kind` do not change. An
/// empty or absent list or map changes nothing. Unlike a configuration, a live object may hold
/// nulls, equal elements, and undeclared fields (of a newer API server), which remain. The error is
/// the first invalid place.
pub fn apply(schema: &Schema, live: &Value, configuration: &Value) -> Result<Value, MergeError> {
    // The check bounds the depth and so comes before the clone, which is recursive, too.
    check(schema, live, configuration, false)?;
    let mut merged = live.clone();
    if let Some(checked) = checked(schema, live, configuration.clone()) {
        checked.merge_into(&mut merged);
    }
    Ok(merged)
}

/// Validates like [`apply`], but leaves the merge to [`Checked::merge_into`]. Returns `None` if
/// nothing changes. A live object that is `sound`, such as the result of an earlier merge, is not
/// validated again.
pub fn check_apply<'a>(
    schema: &'a Schema,
    live: &Value,
    configuration: Value,
    sound: bool,
) -> Result<Option<Checked<'a>>, MergeError> {
    check(schema, live, &configuration, sound)?;
    Ok(checked(schema, live, configuration))
}

/// A valid configuration that changes the live object with which it was checked.
pub struct Checked<'a> {
    schema: &'a Schema,
    configuration: Value,
}

impl Checked<'_> {
    /// Merges the configuration into `live`, which must be the live object of the check.
    pub fn merge_into(self, live: &mut Value) {
        let definitions = &*self.schema.definitions;
        Merge { definitions }.merge(self.schema.type_ref(), live, self.configuration);
    }
}

fn check(
    schema: &Schema,
    live: &Value,
    configuration: &Value,
    sound: bool,
) -> Result<(), MergeError> {
    let definitions = &*schema.definitions;
    let mut check = Checker {
        definitions,
        live: false,
        path: Vec::new(),
    };
    if !configuration.is_object() {
        return Err(check.error("an apply configuration is an object"));
    }
    check.value(schema.type_ref(), configuration, false)?;
    let mut check = Checker {
        definitions,
        live: true,
        path: Vec::new(),
    };
    if !live.is_object() {
        return Err(check.error("is no object"));
    }
    if sound {
        return Ok(());
    }
    check.value(schema.type_ref(), live, false)
}

fn checked<'a>(schema: &'a Schema, live: &Value, mut configuration: Value) -> Option<Checked<'a>> {
    if let Value::Object(fields) = &mut configuration {
        fields.retain(|name, _| !IDENTITY_FIELDS.contains(&name.as_str()));
    }
    let definitions = &*schema.definitions;
    let merge = Merge { definitions };
    let unchanged = merge.contains(schema.type_ref(), live, &configuration);
    (!unchanged).then_some(Checked {
        schema,
        configuration,
    })
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
    fn contains(&self, at: TypeRef<'_>, live: &Value, configured: &Value) -> bool {
        match (live, configured, at.map(), at.list()) {
            (Value::Object(live), Value::Object(configured), Some(map), _)
                if !at.map_is_atomic() =>
            {
                configured.iter().all(|(name, configured)| {
                    let present = live.get(name);
                    present.is_some_and(|live| match map.field(name) {
                        Some((is, _)) => self.contains_field(is, live, configured),
                        None => normalizes_to(live, configured),
                    })
                })
            }
            (Value::Array(live), Value::Array(configured), _, Some(list))
                if !at.list_is_atomic() =>
            {
                let order = self.order(list, live, configured);
                let mut places = order.iter().enumerate();
                order.len() == live.len()
                    && places.all(|(i, from)| match from {
                        ElementSource::Live(l) => *l == i,
                        ElementSource::Configured(a, l) => {
                            *l == Some(i)
                                && self.contains_field(&list.element, &live[i], &configured[*a])
                        }
                    })
            }
            _ => normalizes_to(live, configured),
        }
    }

    fn contains_field(&self, is: &Reference, live: &Value, configured: &Value) -> bool {
        match self.definitions.at(is) {
            Ok(at) => self.contains(at, live, configured),
            Err(_) => normalizes_to(live, configured),
        }
    }

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
