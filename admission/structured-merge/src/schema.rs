use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use crate::{
    SchemaError, document,
    types::{Definitions, Reference, Type, TypeRef},
};

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Schemas {
    definitions: Arc<Definitions>,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Schema {
    pub(crate) definitions: Arc<Definitions>,
    is: Arc<Type>,
    atomic: Option<bool>,
}

/// The kind of values that a schema declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Declared fields, and possibly free ones.
    Object,
    /// Free fields only, with values of one type.
    Map,
    /// A list: atomic, a set or keyed.
    List,
    /// A string, with any format that has no shape of its own.
    String,
    /// A time (RFC 3339), such as `"2026-01-02T03:04:05Z"`.
    Time,
    /// Bytes in base64, with padding.
    Bytes,
    /// A whole number; `5.0` is one too.
    Integer,
    /// A number, whole or not.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A port, a share: `80`, `"http"`, `"25%"`.
    IntOrString,
    /// A resource quantity: `"500m"`, `2`.
    Quantity,
    /// A value of any type: the schema declares none.
    Any,
}

impl Schemas {
    /// Core, apps, autoscaling/v2 and batch of Kubernetes 1.36.3, reduced to the fields of this
    /// crate. `admission/structured-merge/bundle` generates them.
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

    /// The core group is the empty one.
    #[must_use]
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<Schema> {
        let key = (group.to_owned(), version.to_owned(), kind.to_owned());
        let index = *self.definitions.kinds.get(&key)?;
        self.schema(&Reference::named(index))
    }

    /// Group, version and kind of each kind with a schema, unordered.
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

    /// The kind of values that the schema declares.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.is.shape
    }

    /// Atomic: `apply` cannot change a part of it.
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        match self.is.shape {
            Shape::List => self.type_ref().list_is_atomic(),
            _ => self.type_ref().map_is_atomic(),
        }
    }

    /// The keys of a keyed list; empty for other types.
    #[must_use]
    pub fn keys(&self) -> &[String] {
        match self.is.list.as_ref().map(|list| &list.relation) {
            Some(crate::types::Relation::Keyed(keys)) => keys,
            _ => &[],
        }
    }

    /// A declared field, or the type of free fields; `None`: there is no such field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Self> {
        let (reference, _) = self.is.map.as_ref()?.field(name)?;
        Self::new(&self.definitions, reference)
    }

    /// Names of the declared fields, in alphabetical order.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let maps = self.is.map.iter();
        maps.flat_map(|map| map.fields.keys().map(String::as_str))
    }

    /// Schema of a list's elements, or of the values of free fields; `None` if there are none.
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
