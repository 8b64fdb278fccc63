//! Checks a live object or an apply configuration against its schema before the two are merged.

use std::{collections::HashSet, fmt::Write};

use serde_json::Value;

use crate::{
    MergeError, Shape,
    element::{identity, json_type, label},
    scalar::fits,
    types::{Definitions, List, Map, Reference, Scalar, TypeRef},
};

/// The most levels of nested lists and objects, which is the default of `serde_json`.
pub const MAX_DEPTH: usize = 128;

pub(crate) const IDENTITY_FIELDS: [&str; 2] = ["apiVersion", "kind"];

pub(crate) struct Checker<'a> {
    pub definitions: &'a Definitions,
    /// True for a live object, which may have nulls, undeclared fields, equal elements and atomic
    /// values.
    pub live: bool,
    pub path: Vec<PathStep<'a>>,
}

pub(crate) enum PathStep<'a> {
    Field(&'a str),
    Index(usize),
    Element(&'a List, &'a Value),
}

impl<'a> Checker<'a> {
    /// Checks a value. `free` is true if the path has an undeclared name, below which atomic values
    /// may be replaced.
    pub fn value(
        &mut self,
        at: TypeRef<'a>,
        value: &'a Value,
        free: bool,
    ) -> Result<(), MergeError> {
        if self.path.len() >= MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        match value {
            Value::Null if self.live => Ok(()),
            Value::Null => Err(self.error("null cannot be applied; leave the field out")),
            Value::Array(elements) => match at.list() {
                Some(_) if !self.live && !fits(at.is.shape, value) => Err(self.wrong(at, value)),
                Some(list) => self.list(list, elements, free),
                None => Err(self.wrong(at, value)),
            },
            Value::Object(fields) => match at.map() {
                Some(_) if !self.live && !fits(at.is.shape, value) => Err(self.wrong(at, value)),
                Some(map) => {
                    if at.map_is_atomic() {
                        self.refuse_atomic(free)?;
                    }
                    self.map(map, fields, free)
                }
                None => Err(self.wrong(at, value)),
            },
            scalar => match (at.is.scalar, scalar) {
                (Some(Scalar::Any), _)
                | (Some(Scalar::Number), Value::Number(_))
                | (Some(Scalar::String), Value::String(_))
                | (Some(Scalar::Boolean), Value::Bool(_))
                    if self.live || fits(at.is.shape, value) =>
                {
                    Ok(())
                }
                _ => Err(self.wrong(at, value)),
            },
        }
    }

    fn list(
        &mut self,
        list: &'a List,
        elements: &'a [Value],
        free: bool,
    ) -> Result<(), MergeError> {
        if matches!(list.relation, crate::types::Relation::Atomic) {
            self.refuse_atomic(free)?;
        }
        let mut seen = HashSet::new();
        for (index, element) in elements.iter().enumerate() {
            self.path.push(PathStep::Index(index));
            let identity =
                identity(self.definitions, list, element).map_err(|e| self.error(e.0))?;
            if let Some(identity) = identity {
                self.path.pop();
                self.path.push(PathStep::Element(list, element));
                if !self.live && !seen.insert(identity) {
                    return Err(self.error("is there twice; name it once"));
                }
            }
            self.referred(&list.element, element, free)?;
            self.path.pop();
        }
        Ok(())
    }

    fn map(
        &mut self,
        map: &'a Map,
        fields: &'a serde_json::Map<String, Value>,
        free: bool,
    ) -> Result<(), MergeError> {
        for (name, value) in fields {
            if !self.live && self.path.is_empty() && IDENTITY_FIELDS.contains(&name.as_str()) {
                continue;
            }
            self.path.push(PathStep::Field(name));
            match map.field(name) {
                Some((is, declared)) => self.referred(is, value, free || !declared)?,
                None if self.live => {}
                None => {
                    return Err(self.error("the schema declares no such field; see its spelling"));
                }
            }
            self.path.pop();
        }
        Ok(())
    }

    fn referred(
        &mut self,
        is: &'a Reference,
        value: &'a Value,
        free: bool,
    ) -> Result<(), MergeError> {
        match self.definitions.at(is) {
            Ok(at) => self.value(at, value, free),
            Err(name) => Err(self.error(format!("the schema does not define its type {name}"))),
        }
    }

    fn refuse_atomic(&self, free: bool) -> Result<(), MergeError> {
        if self.live || free {
            return Ok(());
        }
        Err(self.error(
            "is atomic: applying a part would drop the rest; use a JSONPatch for it instead",
        ))
    }

    fn wrong(&self, at: TypeRef<'_>, value: &Value) -> MergeError {
        let wanted = match at.is.shape {
            Shape::Object => "an object",
            Shape::Map => "a map",
            Shape::List => "a list",
            Shape::String => "a string",
            Shape::Time => "a date and time (2026-01-02T03:04:05Z)",
            Shape::Bytes => "a string (base64)",
            Shape::Integer => "a whole number",
            Shape::Int32 => "a whole number of 32 bits",
            Shape::Number => "a number",
            Shape::Boolean => "a boolean",
            Shape::IntOrString => "a whole number or a string",
            Shape::Quantity => "a quantity",
            Shape::Any => "any value",
        };
        self.error(format!("is {}, must be {wanted}", json_type(value)))
    }

    pub fn error(&self, reason: impl Into<String>) -> MergeError {
        MergeError {
            path: self.path(),
            reason: reason.into(),
            live: self.live,
        }
    }

    fn path(&self) -> String {
        let mut text = String::new();
        for step in &self.path {
            _ = match step {
                PathStep::Field(name) if name.chars().all(|c| c.is_alphanumeric() || c == '_') => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    write!(text, "{name}")
                }
                PathStep::Field(name) => write!(text, "[{name:?}]"),
                PathStep::Index(index) => write!(text, "[{index}]"),
                PathStep::Element(list, element) => write!(text, "[{}]", label(list, element)),
            };
        }
        text
    }
}
