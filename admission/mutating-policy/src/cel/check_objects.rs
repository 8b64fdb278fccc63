//! `Object{..}` and `JSONPatch{..}`: which types there are, which fields they
//! have, and that a type's name follows the path it stands at.

use std::sync::Arc;

use super::ast::Element;
use super::check::{Checker, Typed};
use super::ir::Ir;
use super::records;
use super::types::Type;

/// Lists of containers: the 2024 spelling used one's type name in the others.
const CONTAINERS: [&str; 3] = ["initContainers", "ephemeralContainers", "containers"];

impl Checker<'_> {
    pub(super) fn object(&mut self, at: u32, name: &str, fields: &[(String, Element)]) -> Typed {
        if !self.declared.patch_types
            || !(name == "JSONPatch" || name == "Object" || name.starts_with("Object."))
        {
            return self.refuse(at, format!("undeclared reference to '{name}'"));
        }
        if name == "JSONPatch" {
            return self.patch(fields);
        }
        let (name, old_spelling) = self.today(name);
        self.known(at, &name);
        let mut items = Vec::with_capacity(fields.len());
        for (field, element) in fields {
            let (item, of) = self.element(element);
            let place: Arc<str> = format!("{name}.{field}").into();
            self.known(element.node.at, &place);
            self.follows(element.node.at, &place, &of);
            items.push((Arc::from(field.as_str()), item));
        }
        let of = Type::Object {
            name: name.clone(),
            old_spelling,
        };
        (
            Ir::Object {
                type_name: name,
                old_spelling,
                fields: items,
            },
            of,
        )
    }

    fn patch(&mut self, fields: &[(String, Element)]) -> Typed {
        let mut items = Vec::with_capacity(fields.len());
        for (field, element) in fields {
            let (item, of) = self.element(element);
            match records::field("JSONPatch", field) {
                None => {
                    self.refuse(
                        element.node.at,
                        format!("undefined field '{field}' of 'JSONPatch'"),
                    );
                }
                Some(wanted) if !self.fits(&of, &wanted) => {
                    let shown = self.show(&of);
                    self.refuse(
                        element.node.at,
                        format!("'{field}' of 'JSONPatch' is a {wanted}, not a {shown}"),
                    );
                }
                Some(_) => {}
            }
            items.push((Arc::from(field.as_str()), item));
        }
        (Ir::Patch(items), Type::Record("JSONPatch"))
    }

    /// The type's name in today's spelling: without the `item` of 2024 that
    /// stood for a list's elements, unless the object has such a field.
    fn today(&self, name: &str) -> (Arc<str>, bool) {
        let parts: Vec<&str> = name.split('.').collect();
        if !parts.contains(&"item") || self.has(name) == Some(true) {
            return (name.into(), false);
        }
        let kept: Vec<&str> = parts.into_iter().filter(|part| *part != "item").collect();
        (kept.join(".").into(), true)
    }

    fn has(&self, name: &str) -> Option<bool> {
        let path: Vec<&str> = name.split('.').skip(1).collect();
        if path.is_empty() {
            return Some(true);
        }
        self.declared.fields.as_ref()?.has(&path)
    }

    fn known(&mut self, at: u32, name: &str) {
        if self.has(name) == Some(false) {
            let (parent, field) = name.rsplit_once('.').unwrap_or(("Object", name));
            self.refuse(
                at,
                format!(
                    "undefined field '{field}' of '{parent}': the object's type has no such field"
                ),
            );
        }
    }

    /// Refuses a value of a type whose name does not follow the field path.
    fn follows(&mut self, at: u32, place: &str, of: &Type) {
        match self.found.look(of) {
            Type::List(inner) | Type::Optional(inner) => self.follows(at, place, &inner),
            Type::Map(_, value) => self.follows(at, place, &value),
            Type::Object { name, old_spelling } if !stands_at(&name, old_spelling, place) => {
                self.refuse(at, format!("unexpected type name '{name}', expected '{place}', which matches the field path"));
            }
            _ => {}
        }
    }
}

/// Whether a type of this name may stand at the place.
pub(super) fn stands_at(name: &str, old_spelling: bool, place: &str) -> bool {
    if name == place {
        return true;
    }
    let kind = |part: &str| {
        if CONTAINERS.contains(&part) {
            "containers".to_owned()
        } else {
            part.to_owned()
        }
    };
    old_spelling && name.split('.').map(kind).eq(place.split('.').map(kind))
}
