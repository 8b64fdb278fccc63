//! The merge of two valid values.

use std::collections::HashMap;

use serde_json::{Map as Object, Value};

use crate::{
    MergeError, Schema,
    check::{Checker, IDENTITY_FIELDS},
    element::{Identity, identity},
    scalar::{normalized, normalizes_to},
    types::{Definitions, List, Map, Reference, TypeRef},
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
    // Before anything is cloned, which is a recursion too.
    check(schema, live, configuration, false)?;
    let mut merged = live.clone();
    if let Some(checked) = checked(schema, live, configuration.clone()) {
        checked.merge_into(&mut merged);
    }
    Ok(merged)
}

/// As [`apply`], in two steps: what is asked is checked first; `None` if it changes
/// nothing. A live object that is `sound`, as what an earlier merge made is, is not
/// checked again.
///
/// # Errors
/// As [`apply`].
pub fn check_apply<'a>(
    schema: &'a Schema,
    live: &Value,
    configuration: Value,
    sound: bool,
) -> Result<Option<Checked<'a>>, MergeError> {
    check(schema, live, &configuration, sound)?;
    Ok(checked(schema, live, configuration))
}

/// A configuration that may be merged into the live object it was checked with, and
/// changes it.
pub struct Checked<'a> {
    schema: &'a Schema,
    configuration: Value,
}

impl Checked<'_> {
    /// Merges it into that object, or into a copy of it.
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
    let held = merge.contains(schema.type_ref(), live, &configuration);
    (!held).then_some(Checked {
        schema,
        configuration,
    })
}

struct Merge<'a> {
    definitions: &'a Definitions,
}

/// Where an element of a merged list comes from.
enum ElementSource {
    Live(usize),
    /// The configuration's, merged with the live one if there is just one.
    Asked(usize, Option<usize>),
}

impl Merge<'_> {
    /// Whether merging changes nothing.
    fn contains(&self, at: TypeRef<'_>, live: &Value, asked: &Value) -> bool {
        match (live, asked, at.map(), at.list()) {
            (Value::Object(live), Value::Object(asked), Some(map), _) if !at.map_is_atomic() => {
                asked.iter().all(|(name, asked)| {
                    let held = live.get(name);
                    held.is_some_and(|live| match map.field(name) {
                        Some((is, _)) => self.contains_field(is, live, asked),
                        None => normalizes_to(live, asked),
                    })
                })
            }
            (Value::Array(live), Value::Array(asked), _, Some(list)) if !at.list_is_atomic() => {
                let order = self.order(list, live, asked);
                let mut places = order.iter().enumerate();
                order.len() == live.len()
                    && places.all(|(i, from)| match from {
                        ElementSource::Live(l) => *l == i,
                        ElementSource::Asked(a, l) => {
                            *l == Some(i)
                                && self.contains_field(&list.element, &live[i], &asked[*a])
                        }
                    })
            }
            _ => normalizes_to(live, asked),
        }
    }

    fn contains_field(&self, is: &Reference, live: &Value, asked: &Value) -> bool {
        match self.definitions.at(is) {
            Ok(at) => self.contains(at, live, asked),
            Err(_) => normalizes_to(live, asked),
        }
    }

    fn merge(&self, at: TypeRef<'_>, live: &mut Value, asked: Value) {
        match (live, asked, at.map(), at.list()) {
            (Value::Object(live), Value::Object(asked), Some(map), _) if !at.map_is_atomic() => {
                self.maps(map, live, asked);
            }
            (Value::Array(live), Value::Array(asked), _, Some(list)) if !at.list_is_atomic() => {
                self.lists(list, live, asked);
            }
            (live, asked, ..) => *live = normalized(asked),
        }
    }

    fn referred(&self, is: &Reference, live: &mut Value, asked: Value) {
        match self.definitions.at(is) {
            Ok(at) => self.merge(at, live, asked),
            Err(_) => *live = normalized(asked),
        }
    }

    fn maps(&self, map: &Map, live: &mut Object<String, Value>, asked: Object<String, Value>) {
        for (name, asked) in asked {
            match (live.get_mut(&name), map.field(&name)) {
                (Some(live), Some((is, _))) => self.referred(is, live, asked),
                (Some(live), None) => *live = normalized(asked),
                (None, _) => {
                    live.insert(name, normalized(asked));
                }
            }
        }
    }

    fn lists(&self, list: &List, live: &mut Vec<Value>, mut asked: Vec<Value>) {
        let order = self.order(list, live, &asked);
        // Each is taken once: an element that is there twice is merged with none.
        let mut take = |from: &ElementSource| match *from {
            ElementSource::Live(l) => live[l].take(),
            ElementSource::Asked(a, None) => normalized(asked[a].take()),
            ElementSource::Asked(a, Some(l)) => {
                let mut element = live[l].take();
                self.referred(&list.element, &mut element, asked[a].take());
                element
            }
        };
        *live = order.iter().map(&mut take).collect();
    }

    /// The elements of both, in an order that keeps each one's as far as can be:
    /// shared elements come in the configuration's order, the live object's own
    /// before or between them as they stood, the configuration's own where it has
    /// them.
    fn order(&self, list: &List, live: &[Value], asked: &[Value]) -> Vec<ElementSource> {
        let of = |element| identity(self.definitions, list, element);
        // All have one: both lists are checked.
        let of = |element| of(element).ok().flatten().unwrap_or_default();
        let live_ids: Vec<Identity<'_>> = live.iter().map(of).collect();
        let asked_ids: Vec<Identity<'_>> = asked.iter().map(of).collect();
        // An element that is there twice is merged with nothing.
        let mut unique: HashMap<&str, Option<usize>> = HashMap::with_capacity(live.len());
        for (l, id) in live_ids.iter().enumerate() {
            let twice = |one: &mut Option<usize>| *one = None;
            unique.entry(id).and_modify(twice).or_insert(Some(l));
        }
        let places = asked_ids.iter().enumerate();
        let places: HashMap<&str, usize> = places.map(|(a, id)| (&**id, a)).collect();
        let mut shared = (0..asked.len()).filter(|a| unique.contains_key(&*asked_ids[*a]));
        let mut turn = shared.next();

        let merge =
            |a: usize| ElementSource::Asked(a, unique.get(&*asked_ids[a]).copied().flatten());
        let mut merged = Vec::with_capacity(live.len() + asked.len());
        let (mut l, mut a) = (0, 0);
        while l < live.len() || a < asked.len() {
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
        merged
    }
}
