//! The values of expressions. Strings, lists and maps are shared, not copied.

pub(crate) mod authorizer;
pub(crate) mod duration;
mod json;
pub(crate) mod named_format;
pub(crate) mod net;
mod quantity;
pub(crate) mod timestamp;
pub(crate) mod url;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;

pub use authorizer::{AccessCheck, Decision, ResourceCheck, Subject};
pub use named_format::NamedFormat;
pub use net::Cidr;
pub use quantity::Quantity;
pub use url::Url;

/// The bytes charged for an element of a list or map.
pub(crate) const ELEMENT_BYTES: usize = size_of::<Value>() + 8;
/// The bytes charged for an entry of a map, including its share of the tree.
pub(crate) const ENTRY_BYTES: usize = size_of::<Key>() + ELEMENT_BYTES;

/// A map, ordered by key so that evaluation is deterministic.
pub type Map = BTreeMap<Key, Value>;

/// A value of an expression.
#[derive(Clone, Debug)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A string.
    String(Arc<str>),
    /// Bytes, base64 in JSON.
    Bytes(Arc<[u8]>),
    /// A list.
    List(Arc<Vec<Value>>),
    /// A map.
    Map(Arc<Map>),
    /// A point in time, years 1 to 9999.
    Timestamp(Timestamp),
    /// A span of time in nanoseconds.
    Duration(i64),
    /// A type, identified by its name.
    Type(Arc<str>),
    /// An optional value.
    Optional(Option<Arc<Value>>),
    /// `Object{..}` and the types below it.
    Object(Arc<Object>),
    /// `JSONPatch{..}`
    Patch(Arc<Patch>),
    /// A quantity, as `quantity(..)` returns it.
    Quantity(Arc<Quantity>),
    /// A semantic version, as `semver(..)` returns it.
    Semver(Arc<semver::Version>),
    /// A URL, as `url(..)` returns it.
    Url(Arc<Url>),
    /// An IP address, as `ip(..)` returns it.
    Ip(IpAddr),
    /// A network, as `cidr(..)` returns it.
    Cidr(Cidr),
    /// A format, as `format.named(..)` or `format.uri()` returns it.
    Format(&'static NamedFormat),
    /// The name of a resource, as `resourceName(..)` returns it.
    ResourceName(Arc<str>),
    /// The value of `authorizer`, for the request's user or a service account.
    Authorizer(Arc<Subject>),
    /// An access check under construction, such as `authorizer.path(..)`.
    AccessCheck(Arc<AccessCheck>),
    /// The decision of an access check, as `.check(..)` returns it.
    Decision(Arc<Decision>),
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A boolean.
    Bool(bool),
    /// An integer, signed or unsigned: equal integers of both types are the same key.
    Int(i128),
    /// A string.
    String(Arc<str>),
}

/// A typed object, as `Object.spec{..}` builds it.
#[derive(Clone, Debug)]
pub struct Object {
    /// The type's name, such as `Object.spec.containers`.
    pub type_name: Arc<str>,
    /// True if the name was written in the spelling of 2024 (`.item`), which may name another kind
    /// of container.
    pub legacy_spelling: bool,
    /// The fields.
    pub fields: BTreeMap<Arc<str>, Value>,
}

/// One operation of a JSON patch (RFC 6902).
#[derive(Clone, Debug)]
pub struct Patch {
    /// `add`, `remove`, `replace`, `move`, `copy` or `test`; empty if absent.
    pub op: Arc<str>,
    /// The target path; empty if absent.
    pub path: Arc<str>,
    /// The source path; empty if absent.
    pub from: Arc<str>,
    /// The value of the operation, if it has one.
    pub value: Option<Value>,
}

impl Value {
    /// Creates a string.
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    /// Creates a list.
    pub fn list(elements: Vec<Self>) -> Self {
        Self::List(Arc::new(elements))
    }

    /// Creates a map.
    pub fn map(entries: Map) -> Self {
        Self::Map(Arc::new(entries))
    }

    /// Creates an optional that holds a value.
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// Returns the name of the value's type, as `type()` shows it.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Object(object) => &object.type_name,
            Self::Patch(_) => "JSONPatch",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::ResourceName(_) => "tautline.ResourceName",
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::AccessCheck(check) => check.type_name(),
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

impl Key {
    /// Returns the value as a key; `None` if its type cannot be one.
    pub fn from_value(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Int(number) => Self::Int(i128::from(*number)),
            Value::Uint(number) => Self::Int(i128::from(*number)),
            Value::String(text) => Self::String(text.clone()),
            // A double with an integral value is a key in lookups only.
            Value::Double(number) if number.fract() == 0.0 && number.abs() < 1e19 => {
                Self::Int(*number as i128)
            }
            _ => return None,
        })
    }

    /// Returns the key as a value.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Bool(flag) => Value::Bool(*flag),
            Self::Int(number) => match i64::try_from(*number) {
                Ok(number) => Value::Int(number),
                Err(_) => Value::Uint(*number as u64),
            },
            Self::String(text) => Value::String(text.clone()),
        }
    }
}
