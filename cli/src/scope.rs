//! The namespaces of a query, and names that are safe in its URL.

use std::fmt;

use kube::{Api, Client, Resource, core::NamespaceResourceScope};
use tautline_core::{dns::is_subdomain, trust::OWN_NAMESPACE};

/// The namespace that is looked into, of commands about the installation.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct OwnNamespace {
    /// Tautline's namespace
    #[arg(
        short,
        long,
        value_name = "NS",
        default_value = OWN_NAMESPACE,
        env = "POD_NAMESPACE",
        value_parser = name
    )]
    pub namespace: String,
}

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct NamespaceArgs {
    /// Namespace [default: that of the kubeconfig's context, else default]
    #[arg(short, long, value_name = "NS", value_parser = name)]
    namespace: Option<String>,
}

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ScopeArgs {
    #[command(flatten)]
    one: NamespaceArgs,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    Namespace(String),
}

impl NamespaceArgs {
    pub(crate) fn named(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub(crate) fn of(&self, client: &Client) -> String {
        match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => client.default_namespace().to_owned(),
        }
    }
}

impl ScopeArgs {
    pub(crate) fn named(&self) -> Option<&str> {
        self.one.named()
    }

    pub(crate) fn of(&self, client: &Client) -> Scope {
        if self.all_namespaces {
            Scope::All
        } else {
            Scope::Namespace(self.one.of(client))
        }
    }

    /// Returns the scope of manifests: all namespaces, unless one is named.
    pub(crate) fn of_manifests(&self) -> Scope {
        match self.one.named() {
            Some(namespace) => Scope::Namespace(namespace.to_owned()),
            None => Scope::All,
        }
    }
}

impl Scope {
    pub(crate) fn contains(&self, namespace: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(wanted) => namespace == Some(wanted),
        }
    }

    /// Returns the API of a kind in this scope.
    pub(crate) fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self {
            Self::All => Api::all(client.clone()),
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
        }
    }

    pub(crate) fn is_all(&self) -> bool {
        *self == Self::All
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all namespaces"),
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
        }
    }
}

/// Parses a Kubernetes name. It becomes part of a URL, so any other text is refused.
pub(crate) fn name(text: &str) -> Result<String, String> {
    if text.contains('/') {
        Err("write the name alone, and its namespace with -n".into())
    } else if is_subdomain(text) {
        Ok(text.to_owned())
    } else {
        Err("a name has lower-case letters, digits, '-' and '.'".into())
    }
}

/// Parses `NAMESPACE/NAME`.
pub(crate) fn object(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, object)) if !namespace.is_empty() && !object.is_empty() => {
            Ok((name(namespace)?, name(object)?))
        }
        _ => Err("write NAMESPACE/NAME".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_refuses_url_syntax() {
        for good in ["a", "web-0", "a.b", "9x"] {
            assert_eq!(name(good).unwrap(), good);
        }
        for bad in ["", "..", "-a", "A", "a?b", "a b", "a%2f", "a-"] {
            assert!(name(bad).unwrap_err().contains("lower-case"), "{bad}");
        }
        assert!(name("shop/web").unwrap_err().contains("-n"));
    }

    #[test]
    fn object_has_a_namespace_and_a_name() {
        assert_eq!(object("ns/a").unwrap(), ("ns".into(), "a".into()));
        for bad in ["name", "ns/", "/a"] {
            assert!(object(bad).unwrap_err().contains("NAMESPACE/NAME"), "{bad}");
        }
        assert!(object("ns/a/b").is_err());
    }
}
