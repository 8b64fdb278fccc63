//! Defines the types of a parsed schema: scalars, lists and maps, and the references between them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::Value;

use crate::Shape;

#[derive(Debug)]
pub(crate) struct Definitions {
    /// The types at [`DEDUCED_TYPE_INDEX`] and [`UNTYPED_TYPE_INDEX`], then the named types.
    pub types: Vec<Arc<Type>>,
    pub kinds: HashMap<(String, String, String), usize>,
}

/// The index of the type of any value whose maps are merged key by key and whose lists are
/// replaced.
pub(crate) const DEDUCED_TYPE_INDEX: usize = 0;
/// The index of the type of any value that is replaced as a whole.
pub(crate) const UNTYPED_TYPE_INDEX: usize = 1;

/// A type, which allows up to three kinds of values: scalars, lists and maps.
#[derive(Debug)]
pub(crate) struct Type {
    pub shape: Shape,
    pub scalar: Option<Scalar>,
    pub list: Option<List>,
    pub map: Option<Map>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Number,
    String,
    Boolean,
    /// Any scalar. Strings with a format have this type, too, because a date may be a number.
    Any,
}

#[derive(Debug)]
pub(crate) struct List {
    pub element: Reference,
    pub relation: Relation,
}

#[derive(Debug)]
pub(crate) enum Relation {
    Atomic,
    Set,
    /// The list contains each combination of these fields' values once. There is at least one
    /// field.
    Keyed(Vec<String>),
}

#[derive(Debug)]
pub(crate) struct Map {
    pub fields: BTreeMap<String, Field>,
    pub others: Option<Reference>,
    pub atomic: bool,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub is: Reference,
    /// The default of a key of a keyed list.
    pub default: Option<Value>,
}

#[derive(Debug)]
pub(crate) struct Reference {
    pub target: Target,
    pub atomic: Option<bool>,
}

#[derive(Debug)]
pub(crate) enum Target {
    Named(usize),
    Inline(Arc<Type>),
    /// A name that the document does not define. No value is valid.
    Missing(String),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TypeRef<'a> {
    pub is: &'a Arc<Type>,
    pub atomic: Option<bool>,
}

impl Definitions {
    /// Returns the type that a reference points to. The error is the undefined name.
    pub fn at<'a>(&'a self, reference: &'a Reference) -> Result<TypeRef<'a>, &'a str> {
        let is = match &reference.target {
            Target::Named(index) => self.types.get(*index).ok_or("")?,
            Target::Inline(is) => is,
            Target::Missing(name) => return Err(name),
        };
        Ok(TypeRef {
            is,
            atomic: reference.atomic,
        })
    }
}

impl<'a> TypeRef<'a> {
    pub fn map(self) -> Option<&'a Map> {
        self.is.map.as_ref()
    }

    pub fn list(self) -> Option<&'a List> {
        self.is.list.as_ref()
    }

    pub fn map_is_atomic(self) -> bool {
        self.map().is_some_and(|m| self.atomic.unwrap_or(m.atomic))
    }

    pub fn list_is_atomic(self) -> bool {
        self.list()
            .is_some_and(|l| matches!(l.relation, Relation::Atomic))
    }
}

impl Map {
    pub fn field(&self, name: &str) -> Option<(&Reference, bool)> {
        match self.fields.get(name) {
            Some(field) => Some((&field.is, true)),
            None => self.others.as_ref().map(|others| (others, false)),
        }
    }
}

impl Reference {
    pub const fn named(index: usize) -> Self {
        Self {
            target: Target::Named(index),
            atomic: None,
        }
    }
}

impl Type {
    /// Returns a type of any value. Its lists are atomic. Its maps are atomic if `atomic`;
    /// otherwise their fields have the type with the index `others`.
    pub fn any(others: usize, atomic: bool) -> Self {
        Self {
            shape: Shape::Any,
            scalar: Some(Scalar::Any),
            list: Some(List {
                element: Reference::named(UNTYPED_TYPE_INDEX),
                relation: Relation::Atomic,
            }),
            map: Some(Map {
                fields: BTreeMap::new(),
                others: Some(Reference::named(others)),
                atomic,
            }),
        }
    }

    pub const fn scalar(shape: Shape, scalar: Scalar) -> Self {
        Self {
            shape,
            scalar: Some(scalar),
            list: None,
            map: None,
        }
    }
}
