//! Provides the schemas of Kubernetes kinds, bundled or read from OpenAPI documents, to merges and
//! other crates.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use serde_json::Value;

use crate::{
    SchemaError, document, scalar,
    types::{Definitions, Reference, Type, TypeRef},
};

/// The schemas of an OpenAPI document, or the bundled ones. They are cheap to clone.
#[derive(Debug, Clone)]
pub struct Schemas {
    definitions: Arc<Definitions>,
}

/// The schema of a kind or of a part of it. It is cheap to clone.
#[derive(Clone)]
pub struct Schema {
    pub(crate) definitions: Arc<Definitions>,
    is: Arc<Type>,
    atomic: Option<bool>,
}

/// The kind of values that a schema declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// An object with declared fields, and possibly with free ones.
    Object,
    /// An object with free fields only, whose values have one type.
    Map,
    /// A list: atomic, a set or keyed.
    List,
    /// A string with any format that does not have a shape of its own.
    String,
    /// A time (RFC 3339), such as `"2026-01-02T03:04:05Z"`.
    Time,
    /// Bytes in base64, with padding.
    Bytes,
    /// A whole number, including `5.0`.
    Integer,
    /// A whole number of 32 bits.
    Int32,
    /// A number, whole or not.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A whole number or a string, such as a port or a share: `80`, `"http"`, `"25%"`.
    IntOrString,
    /// A resource quantity: `"500m"`, `2`.
    Quantity,
    /// A value of any type, if the schema does not declare one.
    Any,
}

impl Shape {
    /// Returns whether a scalar is a value that Go's type of the shape can have: in range, and a
    /// quantity, time or base64 where its text must be one.
    #[must_use]
    pub fn fits(self, scalar: &Value) -> bool {
        scalar::fits(self, scalar)
    }
}

impl Schemas {
    /// Returns the schemas of core, apps, autoscaling/v2 and batch of Kubernetes 1.36.3, reduced to
    /// the fields that this crate reads. `admission/structured-merge/bundle` generates them.
    #[must_use]
    pub fn bundled() -> &'static Self {
        static BUNDLED: LazyLock<Schemas> = LazyLock::new(|| {
            Schemas::read(include_bytes!("bundled.json")).unwrap_or_else(|_| Schemas {
                definitions: Arc::new(Definitions {
                    types: Vec::new(),
                    kinds: [].into(),
                }),
            })
        });
        &BUNDLED
    }

    /// Reads a document of `/openapi/v3/`.
    pub fn read(document: &[u8]) -> Result<Self, SchemaError> {
        Ok(Self {
            definitions: Arc::new(document::read(document)?),
        })
    }

    /// Returns the schema of a kind. The name of the core group is empty.
    #[must_use]
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<Schema> {
        let key = (group.to_owned(), version.to_owned(), kind.to_owned());
        let index = *self.definitions.kinds.get(&key)?;
        self.schema(&Reference::named(index))
    }

    /// Returns the group, version and kind of each kind with a schema, in no particular order.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let kinds = self.definitions.kinds.keys();
        kinds.map(|(group, version, kind)| (group.as_str(), version.as_str(), kind.as_str()))
    }

    fn schema(&self, reference: &Reference) -> Option<Schema> {
        Schema::new(&self.definitions, reference)
    }
}

impl Schema {
    fn new(definitions: &Arc<Definitions>, reference: &Reference) -> Option<Self> {
        let place = definitions.at(reference).ok()?;
        Some(Self {
            definitions: definitions.clone(),
            is: place.is.clone(),
            atomic: place.atomic,
        })
    }

    pub(crate) const fn type_ref(&self) -> TypeRef<'_> {
        TypeRef {
            is: &self.is,
            atomic: self.atomic,
        }
    }

    /// Returns the kind of values that the schema declares.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.is.shape
    }

    /// Returns whether the type is atomic, so that `apply` cannot change only a part.
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        match self.is.shape {
            Shape::List => self.type_ref().list_is_atomic(),
            _ => self.type_ref().map_is_atomic(),
        }
    }

    /// Returns the keys of a keyed list; an empty list for other types.
    #[must_use]
    pub fn keys(&self) -> &[String] {
        match self.is.list.as_ref().map(|list| &list.relation) {
            Some(crate::types::Relation::Keyed(keys)) => keys,
            _ => &[],
        }
    }

    /// Returns the schema of a declared or free field; `None` if there is no such field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Self> {
        let (reference, _) = self.is.map.as_ref()?.field(name)?;
        Self::new(&self.definitions, reference)
    }

    /// Returns the names of the declared fields, in alphabetical order.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let maps = self.is.map.iter();
        maps.flat_map(|map| map.fields.keys().map(String::as_str))
    }

    /// Returns the schema of a list's elements, or of the values of free fields; `None` if there
    /// are none.
    #[must_use]
    pub fn element(&self) -> Option<Self> {
        let reference = match self.is.shape {
            Shape::List => self.is.list.as_ref().map(|list| &list.element),
            _ => self.is.map.as_ref().and_then(|map| map.others.as_ref()),
        };
        Self::new(&self.definitions, reference?)
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("shape", &self.is.shape)
            .field("fields", &self.fields().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
