//! Generates random objects and configurations from few names, so that their elements and keys are
//! often equal.

use fastrand::Rng;
use serde_json::{Map as Object, Value, json};

use crate::{Schema, Shape};

const NAMES: [&str; 5] = ["a", "b", "web", "nvidia.com/gpu", ""];
const PORTS: [i64; 4] = [0, 1, 80, 8080];
/// The number of levels whose objects have optional fields.
const OPTIONAL_FIELD_LEVELS: usize = 8;

/// Returns a valid live object, sometimes with equal elements and nulls.
pub fn live(schema: &Schema, rng: &mut Rng) -> Value {
    Generator {
        rng,
        configuration: false,
    }
    .value(schema, None, 0)
}

/// Returns a configuration for `live`. About three in four are valid.
pub fn configuration(schema: &Schema, live: &Value, rng: &mut Rng) -> Value {
    let mut made = Generator {
        rng,
        configuration: true,
    }
    .value(schema, Some(live), 0);
    if rng.u8(..) < 48 {
        spoil(&mut made, rng);
    }
    made
}

struct Generator<'a> {
    rng: &'a mut Rng,
    /// True for a configuration, which has no nulls, no equal elements and hardly any atomic
    /// values.
    configuration: bool,
}

impl Generator<'_> {
    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    fn value(&mut self, schema: &Schema, like: Option<&Value>, depth: usize) -> Value {
        if let Some(scalar) = like
            && (scalar.is_string() || scalar.is_number() || scalar.is_boolean())
            && self.one_in(3)
        {
            return scalar.clone();
        }
        match schema.shape() {
            Shape::Object => self.object(schema, like, depth),
            Shape::Map => self.map(schema, like, depth),
            Shape::List => self.list(schema, like, depth),
            Shape::String => json!(self.name()),
            Shape::Time => json!("2026-01-02T03:04:05Z"),
            Shape::Bytes => json!(["", "aGk="][self.rng.usize(..2)]),
            Shape::Integer | Shape::Int32 => match self.rng.u8(..20) {
                0 => json!(80.0),
                _ => json!(PORTS[self.rng.usize(..PORTS.len())]),
            },
            Shape::Number => json!([0.5, 1.0, 3.0][self.rng.usize(..3)]),
            Shape::Boolean => json!(self.rng.bool()),
            Shape::IntOrString => {
                [json!(80), json!("http"), json!("25%")][self.rng.usize(..3)].clone()
            }
            Shape::Quantity => [json!("1"), json!("500m"), json!(2)][self.rng.usize(..3)].clone(),
            Shape::Any => [
                json!("a"),
                json!(1),
                json!({"a": {"b": true}}),
                json!([1, {}]),
            ][self.rng.usize(..4)]
            .clone(),
        }
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.rng.usize(..NAMES.len())]
    }

    fn object(&mut self, schema: &Schema, like: Option<&Value>, depth: usize) -> Value {
        let names: Vec<String> = schema.fields().map(str::to_owned).collect();
        let mut fields = Object::new();
        for name in names {
            // The server checks these two fields.
            if depth == 0 && matches!(name.as_str(), "apiVersion" | "kind") {
                continue;
            }
            let Some(field) = schema.field(&name) else {
                continue;
            };
            let there = like.and_then(|like| like.get(&name));
            let wanted = match (there, depth) {
                (Some(_), _) => self.rng.bool(),
                (_, 0) => self.rng.bool(),
                (_, OPTIONAL_FIELD_LEVELS..) => false,
                _ => self.one_in(if field.keys().is_empty() { 8 } else { 3 }),
            };
            if !wanted || self.configuration && field.is_atomic() && !self.one_in(150) {
                continue;
            }
            let value = if !self.configuration && self.one_in(60) {
                Value::Null
            } else {
                self.value(&field, there, depth + 1)
            };
            fields.insert(name, value);
        }
        Value::Object(fields)
    }

    fn map(&mut self, schema: &Schema, like: Option<&Value>, depth: usize) -> Value {
        let mut fields = Object::new();
        if let Some(element) = schema.element() {
            for _ in 0..self.rng.usize(..4) {
                let name = self.name();
                let there = like.and_then(|like| like.get(name));
                let value = self.value(&element, there, depth + 1);
                fields.insert(name.to_owned(), value);
            }
        }
        Value::Object(fields)
    }

    fn list(&mut self, schema: &Schema, like: Option<&Value>, depth: usize) -> Value {
        let Some(element) = schema.element() else {
            return json!([]);
        };
        let mut elements: Vec<Value> = Vec::new();
        let there = like
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        for each in there {
            if self.rng.bool() {
                let mut made = self.value(&element, Some(each), depth + 1);
                for key in schema.keys() {
                    keep(&mut made, key, each.get(key));
                }
                elements.push(made);
            }
        }
        for _ in 0..self.rng.usize(..4) {
            let mut made = self.value(&element, None, depth + 1);
            for key in schema.keys() {
                if self.one_in(12) {
                    continue;
                }
                if let Some(is) = element.field(key) {
                    let value = self.value(&is, None, depth + 1);
                    keep(&mut made, key, Some(&value));
                }
            }
            elements.push(made);
        }
        self.rng.shuffle(&mut elements);
        // Only atomic or live lists may have equal elements.
        let strict = !schema.is_atomic() && (self.configuration || !self.one_in(10));
        if strict && !self.one_in(100) {
            let identity = |value: &Value| match schema.keys() {
                [] => value.to_string(),
                keys => keys
                    .iter()
                    .map(|k| format!("{:?} ", value.get(k)))
                    .collect(),
            };
            let mut seen = std::collections::HashSet::new();
            elements.retain(|each| seen.insert(identity(each)));
        }
        Value::Array(elements)
    }
}

fn keep(element: &mut Value, key: &str, value: Option<&Value>) {
    if let (Some(fields), Some(value)) = (element.as_object_mut(), value) {
        fields.insert(key.to_owned(), value.clone());
    }
}

fn spoil(value: &mut Value, rng: &mut Rng) {
    let deeper = rng.u8(..8) > 0;
    match value {
        Value::Object(fields) if deeper && !fields.is_empty() => {
            let index = rng.usize(..fields.len());
            if let Some(field) = fields.values_mut().nth(index) {
                spoil(field, rng);
            }
        }
        Value::Array(elements) if deeper && !elements.is_empty() => {
            let index = rng.usize(..elements.len());
            spoil(&mut elements[index], rng);
        }
        Value::Object(fields) if rng.bool() => {
            fields.insert("noSuchField".to_owned(), json!("a"));
        }
        Value::Array(elements) if rng.bool() && !elements.is_empty() => {
            elements.push(elements[0].clone());
        }
        other => {
            *other = [
                json!(null),
                json!(1.5),
                json!("a"),
                json!(true),
                json!([]),
                json!({}),
            ][rng.usize(..6)]
            .clone();
        }
    }
}
