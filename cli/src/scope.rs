//! The namespaces of a query, and names that are safe in its URL.

use std::fmt;

use kube::Client;
use tautline_core::trust::OWN_NAMESPACE;

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
    pub(crate) fn of(&self, client: &Client) -> Scope {
        if self.all_namespaces {
            Scope::All
        } else {
            Scope::Namespace(self.one.of(client))
        }
    }
}

impl Scope {
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
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if text.contains('/') {
        Err("write the name alone, and its namespace with -n".into())
    } else if text.len() > 253
        || !text.chars().all(fits)
        || !text.starts_with(ends)
        || !text.ends_with(ends)
    {
        Err("a name has lower-case letters, digits, '-' and '.'".into())
    } else {
        Ok(text.to_owned())
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
}
