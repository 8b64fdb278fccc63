//! Parses OpenAPI v3 documents by the rules of the API server's own merge schemas. Only `type`,
//! `format`, `properties`, `items`, `additionalProperties`, `default`, `$ref` (also alone in
//! `allOf`) and the `x-kubernetes-*` list, map and patch extensions count.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map as Object, Value};

use crate::{
    SchemaError, Shape,
    error::Invalid,
    types::{
        DEDUCED_TYPE_INDEX, Definitions, Field, List, Map, Reference, Relation, Scalar, Target,
        Type, UNTYPED_TYPE_INDEX,
    },
};

/// The size of the largest document, in bytes. The core group of Kubernetes 1.36 has 1.6 MB.
pub const MAX_DOCUMENT_BYTES: usize = 32 << 20;

// The server does not treat these two types as its documents describe them.
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

pub(crate) fn read(document: &[u8]) -> Result<Definitions, SchemaError> {
    if document.len() > MAX_DOCUMENT_BYTES {
        return Err(SchemaError::TooLarge {
            bytes: document.len(),
            limit: MAX_DOCUMENT_BYTES,
        });
    }
    let document: Value =
        serde_json::from_slice(document).map_err(|e| SchemaError::Json(e.to_string()))?;
    let schemas = document
        .pointer("/components/schemas")
        .and_then(Value::as_object)
        .ok_or(SchemaError::NoSchemas)?;

    let mut types = vec![
        Arc::new(Type::any(DEDUCED_TYPE_INDEX, false)),
        Arc::new(Type::any(UNTYPED_TYPE_INDEX, true)),
    ];
    // A definition that only refers to another does not count, as in the server.
    let defined = || schemas.iter().filter(|(_, is)| is.get("$ref").is_none());
    let names: HashMap<&str, usize> = defined()
        .enumerate()
        .map(|(index, (name, _))| (name.as_str(), index + types.len()))
        .collect();
    let mut kinds = HashMap::new();
    for (name, schema) in defined() {
        kinds.extend(group_version_kinds(schema).map(|kind| (kind, types.len())));
        let read = match name.as_str() {
            QUANTITY => Ok(Type::scalar(Shape::Quantity, Scalar::Any)),
            RAW_EXTENSION => Ok(Type::any(UNTYPED_TYPE_INDEX, true)),
            _ => Reader { names: &names }.schema(schema, false),
        };
        types.push(Arc::new(read.map_err(|invalid| {
            SchemaError::Definition {
                definition: name.clone(),
                reason: invalid.0,
            }
        })?));
    }
    Ok(Definitions { types, kinds })
}

fn group_version_kinds(schema: &Value) -> impl Iterator<Item = (String, String, String)> {
    schema
        .get("x-kubernetes-group-version-kind")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|each| {
            let text = |name| each.get(name).and_then(Value::as_str).map(str::to_owned);
            Some((text("group")?, text("version")?, text("kind")?))
        })
}

struct Reader<'a> {
    names: &'a HashMap<&'a str, usize>,
}

impl Reader<'_> {
    /// Reads a schema. `preserve` is true if undeclared fields are preserved, here and in all
    /// nested schemas.
    fn schema(&self, schema: &Value, preserve: bool) -> Result<Type, Invalid> {
        let preserve = preserve || has_extension(schema, "x-kubernetes-preserve-unknown-fields");
        let format = schema.get("format").and_then(Value::as_str).unwrap_or("");
        Ok(match kind_of(schema) {
            "" => Type {
                shape: any_or_int_or_string(schema, format),
                scalar: Some(Scalar::Any),
                list: Some(self.list(schema, preserve)?),
                map: Some(self.map(schema, preserve)?),
            },
            "object" => {
                let map = self.map(schema, preserve)?;
                Type {
                    shape: if map.fields.is_empty() {
                        Shape::Map
                    } else {
                        Shape::Object
                    },
                    scalar: None,
                    list: None,
                    map: Some(map),
                }
            }
            "array" => Type {
                shape: Shape::List,
                scalar: None,
                list: Some(self.list(schema, preserve)?),
                map: None,
            },
            "integer" if format == "int32" => Type::scalar(Shape::Int32, Scalar::Number),
            "integer" => Type::scalar(Shape::Integer, Scalar::Number),
            "number" => Type::scalar(Shape::Number, Scalar::Number),
            "boolean" => Type::scalar(Shape::Boolean, Scalar::Boolean),
            "string" => match format {
                "" => Type::scalar(Shape::String, Scalar::String),
                "byte" => Type::scalar(Shape::Bytes, Scalar::String),
                "date-time" => Type::scalar(Shape::Time, Scalar::Any),
                "int-or-string" => Type::scalar(Shape::IntOrString, Scalar::Any),
                _ => Type::scalar(Shape::String, Scalar::Any),
            },
            other => return Err(Invalid(format!("type {other:?} is not a JSON type"))),
        })
    }

    fn reference(&self, schema: &Value, preserve: bool) -> Result<Reference, Invalid> {
        let Some(name) = referred(schema) else {
            return Ok(Reference {
                target: Target::Inline(Arc::new(self.schema(schema, preserve)?)),
                atomic: None,
            });
        };
        Ok(Reference {
            target: match self.names.get(name) {
                Some(index) => Target::Named(*index),
                None => Target::Missing(name.to_owned()),
            },
            atomic: map_relation(schema)?,
        })
    }

    fn map(&self, schema: &Value, preserve: bool) -> Result<Map, Invalid> {
        let nothing = Object::new();
        let properties = schema
            .get("properties")
            .and_then(Value::as_object)
            .unwrap_or(&nothing);
        let fields = properties
            .iter()
            .map(|(name, is)| {
                let field = Field {
                    is: self
                        .reference(is, preserve)
                        .map_err(|reason| Invalid(format!("{name}: {reason}")))?,
                    default: is.get("default").filter(|d| !d.is_null()).cloned(),
                };
                Ok((name.clone(), field))
            })
            .collect::<Result<_, Invalid>>()?;
        let others = match schema.get("additionalProperties") {
            // If no fields are declared, all names are allowed.
            None => {
                (preserve || properties.is_empty()).then(|| Reference::named(DEDUCED_TYPE_INDEX))
            }
            Some(Value::Bool(allowed)) => allowed.then(|| Reference::named(DEDUCED_TYPE_INDEX)),
            Some(others) => Some(self.reference(others, preserve)?),
        };
        Ok(Map {
            fields,
            others,
            atomic: map_relation(schema)?.unwrap_or(false),
        })
    }

    fn list(&self, schema: &Value, preserve: bool) -> Result<List, Invalid> {
        let element = match schema.get("items") {
            Some(items @ Value::Object(_)) => self.reference(items, preserve)?,
            Some(_) => return Err("items is no schema".into()),
            None if kind_of(schema).is_empty() => Reference::named(UNTYPED_TYPE_INDEX),
            None => return Err("an array without items".into()),
        };
        Ok(List {
            element,
            relation: list_relation(schema)?,
        })
    }
}

fn kind_of(schema: &Value) -> &str {
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.first(),
        kind => kind,
    };
    kind.and_then(Value::as_str).unwrap_or("")
}

fn has_extension(schema: &Value, extension: &str) -> bool {
    schema.get(extension) == Some(&Value::Bool(true))
}

fn any_or_int_or_string(schema: &Value, format: &str) -> Shape {
    if format == "int-or-string" || has_extension(schema, "x-kubernetes-int-or-string") {
        Shape::IntOrString
    } else {
        Shape::Any
    }
}

fn referred(schema: &Value) -> Option<&str> {
    let alone = || match schema.get("allOf").and_then(Value::as_array)?.as_slice() {
        [one] => one.get("$ref"),
        _ => None,
    };
    let path = schema.get("$ref").or_else(alone)?.as_str()?;
    let name = path.rsplit('/').next().unwrap_or(path);
    (!name.is_empty()).then_some(name)
}

fn map_relation(schema: &Value) -> Result<Option<bool>, Invalid> {
    match schema.get("x-kubernetes-map-type") {
        None => Ok(None),
        Some(kind) => match kind.as_str() {
            Some("atomic") => Ok(Some(true)),
            Some("granular") => Ok(Some(false)),
            _ => Err(Invalid(format!("x-kubernetes-map-type {kind} is unknown"))),
        },
    }
}

fn list_relation(schema: &Value) -> Result<Relation, Invalid> {
    if let Some(kind) = schema.get("x-kubernetes-list-type") {
        return match kind.as_str() {
            Some("atomic") => Ok(Relation::Atomic),
            Some("set") => Ok(Relation::Set),
            Some("map") => {
                let keys = schema
                    .get("x-kubernetes-list-map-keys")
                    .and_then(Value::as_array)
                    .ok_or("x-kubernetes-list-type map without x-kubernetes-list-map-keys")?;
                let keys = keys.iter().filter_map(Value::as_str).map(str::to_owned);
                Ok(keyed(keys.collect()))
            }
            _ => Err(Invalid(format!("x-kubernetes-list-type {kind} is unknown"))),
        };
    }
    let Some(strategy) = schema.get("x-kubernetes-patch-strategy") else {
        return Ok(Relation::Atomic);
    };
    match strategy.as_str() {
        Some("merge" | "merge,retainKeys") => match schema.get("x-kubernetes-patch-merge-key") {
            None => Ok(Relation::Set),
            Some(Value::String(key)) => Ok(keyed(vec![key.clone()])),
            Some(key) => Err(Invalid(format!(
                "x-kubernetes-patch-merge-key {key} is no name"
            ))),
        },
        Some("retainKeys") => Ok(Relation::Atomic),
        _ => Err(Invalid(format!(
            "x-kubernetes-patch-strategy {strategy} is unknown"
        ))),
    }
}

/// Returns the relation of a list with these keys; a set if there are none. The keys are sorted,
/// because identities are compared as text.
fn keyed(mut keys: Vec<String>) -> Relation {
    keys.sort();
    if keys.is_empty() {
        Relation::Set
    } else {
        Relation::Keyed(keys)
    }
}
