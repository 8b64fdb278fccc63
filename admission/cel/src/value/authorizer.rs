//! The values behind `authorizer`: whom a question is about, and what it asks.
//! Whoever implements [`Names`](crate::Names) answers it.

use std::sync::Arc;

/// Whose permission is asked for.
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

/// A question under construction; `check(verb)` asks it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccessCheck {
    /// `authorizer.path(..)`
    Path {
        /// Whose permission.
        subject: Arc<Subject>,
        /// The path of a request for no resource.
        path: Arc<str>,
    },
    /// `authorizer.group(..)`
    Group {
        /// Whose permission.
        subject: Arc<Subject>,
        /// The API group, empty for the core one.
        group: Arc<str>,
    },
    /// `authorizer.group(..).resource(..)` and what follows.
    Resource(ResourceCheck),
}

/// A question about a resource; what was not given is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceCheck {
    /// Whose permission.
    pub subject: Arc<Subject>,
    /// The API group, empty for the core one.
    pub group: Arc<str>,
    /// The resource's plural name.
    pub resource: Arc<str>,
    /// The subresource.
    pub subresource: Arc<str>,
    /// The namespace; empty for all, or for none.
    pub namespace: Arc<str>,
    /// The object's name; empty for all.
    pub name: Arc<str>,
    /// A field selector, unparsed.
    pub field_selector: Arc<str>,
    /// A label selector, unparsed.
    pub label_selector: Arc<str>,
}

/// The answer to a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The verb may be used.
    pub allowed: bool,
    /// Why, in the authorizer's words.
    pub reason: String,
    /// The authorizer's error, which is no error of the expression.
    pub error: Option<String>,
}

impl AccessCheck {
    /// The name of the question's type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Path { .. } => "kubernetes.authorization.PathCheck",
            Self::Group { .. } => "kubernetes.authorization.GroupCheck",
            Self::Resource(_) => "kubernetes.authorization.ResourceCheck",
        }
    }
}
