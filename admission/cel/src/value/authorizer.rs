//! The values of the authorizer library. The [`Resolver`](crate::Resolver) makes the decisions.

use std::sync::Arc;

/// The subject of an access check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The user of the request.
    Requester,
    /// `authorizer.serviceAccount(namespace, name)`
    ServiceAccount {
        /// The account's namespace.
        namespace: Arc<str>,
        /// The account's name.
        name: Arc<str>,
    },
}

/// An access check under construction. `check(verb)` performs it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccessCheck {
    /// `authorizer.path(..)`
    Path {
        /// The subject.
        subject: Arc<Subject>,
        /// The path of a non-resource request.
        path: Arc<str>,
    },
    /// `authorizer.group(..)`
    Group {
        /// The subject.
        subject: Arc<Subject>,
        /// The API group, empty for the core one.
        group: Arc<str>,
    },
    /// `authorizer.group(..).resource(..)` and its members.
    Resource(ResourceCheck),
}

/// An access check for a resource. Absent parts are empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceCheck {
    /// The subject.
    pub subject: Arc<Subject>,
    /// The API group, empty for the core one.
    pub group: Arc<str>,
    /// The resource's plural name.
    pub resource: Arc<str>,
    /// The subresource.
    pub subresource: Arc<str>,
    /// The namespace; empty for all namespaces or a cluster-scoped resource.
    pub namespace: Arc<str>,
    /// The object's name; empty for all.
    pub name: Arc<str>,
    /// A field selector, unparsed.
    pub field_selector: Arc<str>,
    /// A label selector, unparsed.
    pub label_selector: Arc<str>,
}

/// The decision of an access check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// True if the verb is allowed.
    pub allowed: bool,
    /// The authorizer's reason.
    pub reason: String,
    /// The authorizer's error, which is not an error of the expression.
    pub error: Option<String>,
}

impl AccessCheck {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Path { .. } => "kubernetes.authorization.PathCheck",
            Self::Group { .. } => "kubernetes.authorization.GroupCheck",
            Self::Resource(_) => "kubernetes.authorization.ResourceCheck",
        }
    }
}
