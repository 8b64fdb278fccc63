use std::fmt;
use std::sync::Arc;

/// A static type of the checker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A type that is known only at evaluation.
    Dyn,
    /// The type of `null`.
    Null,
    /// Booleans.
    Bool,
    /// Signed integers.
    Int,
    /// Unsigned integers.
    Uint,
    /// Floating-point numbers.
    Double,
    /// Strings.
    String,
    /// Bytes.
    Bytes,
    /// Points in time.
    Timestamp,
    /// Spans of time.
    Duration,
    /// Types as values.
    Type(Arc<Type>),
    /// Lists of one type.
    List(Arc<Type>),
    /// Maps from keys of one type to values of another.
    Map(Arc<Type>, Arc<Type>),
    /// Optional values of a type.
    Optional(Arc<Type>),
    /// A type of the library that has no fields, identified by its name.
    Opaque(&'static str),
    /// A named type that may be null. Its fields are declared with
    /// [`Environment::with_record_fields`](crate::Environment::with_record_fields).
    Record(&'static str),
    /// `Object{..}` and the types below it.
    Object {
        /// The type's name, such as `Object.spec.containers`.
        name: Arc<str>,
        /// True if the name was written in the spelling of 2024, with `item` for list elements.
        legacy_spelling: bool,
    },
    /// A type variable, written `A` or `B` in declarations.
    Unknown(u32),
}

impl Type {
    /// The type of `authorizer`.
    pub const AUTHORIZER: Self = Self::Record("kubernetes.authorization.Authorizer");
    /// The type of `authorizer.group(..).resource(..)`.
    pub const RESOURCE_CHECK: Self = Self::Record("kubernetes.authorization.ResourceCheck");
    pub(crate) const JSON_PATCH: Self = Self::Record("JSONPatch");

    /// Returns the type of lists of a type.
    pub fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    /// Returns the type of optionals of a type.
    pub fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// Returns the type of maps from a type to another.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// Returns the name of the type without its parts, which is also the name of its values' type.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Optional(_) => "optional_type",
            Self::Opaque(name) | Self::Record(name) => name,
            Self::Object { name, .. } => name,
            Self::Unknown(_) => "_",
        }
    }

    /// Returns the type that a name denotes, such as `int` in `type(1) == int`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "list" => Type::list(Type::Dyn),
            "map" => Type::map(Type::Dyn, Type::Dyn),
            "null_type" => Type::Null,
            "type" => Type::Type(Type::Dyn.into()),
            "optional_type" => Type::optional(Type::Dyn),
            "google.protobuf.Timestamp" => Type::Timestamp,
            "google.protobuf.Duration" => Type::Duration,
            "net.IP" => Type::Opaque("net.IP"),
            "net.CIDR" => Type::Opaque("net.CIDR"),
            _ => return None,
        })
    }

    pub(crate) fn parts(&self) -> [Option<&Self>; 2] {
        match self {
            Self::List(of) | Self::Optional(of) | Self::Type(of) => [Some(of), None],
            Self::Map(key, value) => [Some(key), Some(value)],
            _ => [None, None],
        }
    }

    /// Returns the type with its parts changed.
    pub(crate) fn with(&self, change: &mut impl FnMut(&Self) -> Self) -> Self {
        match self {
            Self::List(of) => Self::list(change(of)),
            Self::Optional(of) => Self::optional(change(of)),
            Self::Type(of) => Self::Type(Arc::new(change(of))),
            Self::Map(key, value) => Self::map(change(key), change(value)),
            other => other.clone(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Type(of) | Self::List(of) | Self::Optional(of) => write!(f, "({of})"),
            Self::Map(key, value) => write!(f, "({key}, {value})"),
            Self::Unknown(number) => write!(f, "{number}"),
            _ => Ok(()),
        }
    }
}

/// The fields that hold containers. In the spelling of 2024 the type name of one stands for the
/// others, too.
const CONTAINERS: [&str; 3] = ["initContainers", "ephemeralContainers", "containers"];

pub(crate) fn object_type_matches(name: &str, legacy_spelling: bool, path: &str) -> bool {
    if name == path {
        return true;
    }
    let kind = |part: &str| {
        if CONTAINERS.contains(&part) {
            "containers".to_owned()
        } else {
            part.to_owned()
        }
    };
    legacy_spelling && name.split('.').map(kind).eq(path.split('.').map(kind))
}
