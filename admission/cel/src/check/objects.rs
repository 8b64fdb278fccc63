//! Checks `Object{..}` and `JSONPatch{..}`: their fields must exist, and the type names in an
//! object must match the field path.

use std::sync::Arc;

use super::{Checker, Typed};
use crate::ir::Ir;
use crate::syntax::ast::Element;
use crate::types::{Type, object_type_matches};

impl Checker<'_> {
    pub(crate) fn object(&mut self, at: u32, name: &str, fields: &[(String, Element)]) -> Typed {
        if !self.declarations.patch_types
            || !(name == "JSONPatch" || name == "Object" || name.starts_with("Object."))
        {
            return self.issue(at, format!("undeclared reference to '{name}'"));
        }
        if name == "JSONPatch" {
            return self.patch(fields);
        }
        let (name, legacy_spelling) = self.current_spelling(name);
        self.check_field(at, &name);
        let mut items = Vec::with_capacity(fields.len());
        for (field, element) in fields {
            let (item, of) = self.element(element);
            let place: Arc<str> = format!("{name}.{field}").into();
            self.check_field(element.node.at, &place);
            self.check_type_name(element.node.at, &place, &of);
            items.push((Arc::from(field.as_str()), item));
        }
        let of = Type::Object {
            name: name.clone(),
            legacy_spelling,
        };
        (
            Ir::Object {
                type_name: name,
                legacy_spelling,
                fields: items,
            },
            of,
        )
    }

    fn patch(&mut self, fields: &[(String, Element)]) -> Typed {
        let mut items = Vec::with_capacity(fields.len());
        for (field, element) in fields {
            let (item, of) = self.element(element);
            match self.record_field("JSONPatch", field) {
                None => {
                    self.issue(
                        element.node.at,
                        format!("undefined field '{field}' of 'JSONPatch'"),
                    );
                }
                Some(wanted) if !self.fits(&of, &wanted) => {
                    let shown = self.show(&of);
                    self.issue(
                        element.node.at,
                        format!("'{field}' of 'JSONPatch' is a {wanted}, not a {shown}"),
                    );
                }
                Some(_) => {}
            }
            items.push((Arc::from(field.as_str()), item));
        }
        (Ir::Patch(items), Type::JSON_PATCH)
    }

    /// Returns the type name without the `item` parts that Kubernetes required for list elements in
    /// 2024, and whether any were removed. A name that is a path to an existing field is not
    /// changed.
    fn current_spelling(&self, name: &str) -> (Arc<str>, bool) {
        let parts: Vec<&str> = name.split('.').collect();
        if !parts.contains(&"item") || self.has_field(name) == Some(true) {
            return (name.into(), false);
        }
        let current: Vec<&str> = parts.into_iter().filter(|part| *part != "item").collect();
        (current.join(".").into(), true)
    }

    fn has_field(&self, name: &str) -> Option<bool> {
        let path: Vec<&str> = name.split('.').skip(1).collect();
        if path.is_empty() {
            return Some(true);
        }
        self.declarations.object_schema.as_ref()?.has_field(&path)
    }

    fn check_field(&mut self, at: u32, name: &str) {
        if self.has_field(name) == Some(false) {
            let (parent, field) = name.rsplit_once('.').unwrap_or(("Object", name));
            self.issue(
                at,
                format!(
                    "undefined field '{field}' of '{parent}': the object's type has no such field"
                ),
            );
        }
    }

    fn check_type_name(&mut self, at: u32, place: &str, of: &Type) {
        match self.inference.head(of) {
            Type::List(inner) | Type::Optional(inner) => self.check_type_name(at, place, &inner),
            Type::Map(_, value) => self.check_type_name(at, place, &value),
            Type::Object {
                name,
                legacy_spelling,
            } if !object_type_matches(&name, legacy_spelling, place) => {
                self.issue(at, format!("unexpected type name '{name}', expected '{place}', which matches the field path"));
            }
            _ => {}
        }
    }
}
