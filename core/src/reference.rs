//! References to objects: `cluster:namespace:apiVersion:Kind:name`.

use std::{fmt, str::FromStr};

/// A reference to one object. Empty `cluster` and `namespace` mean "this
/// cluster" and "not namespaced".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    pub cluster: String,
    pub namespace: String,
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

/// Why a text is no reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error(
        "reference {0:?} has {1} parts; write [[cluster:]namespace:]apiVersion:Kind:name (3 to 5 parts)"
    )]
    Parts(String, usize),
    #[error("reference {0:?}: the kind {1:?} must begin with a capital letter, as in v1:Pod:web-0")]
    Kind(String, String),
    #[error("reference {0:?}: apiVersion and name must not be empty, as in v1:Pod:web-0")]
    Empty(String),
}

impl Reference {
    /// A pod of this cluster.
    pub fn pod(namespace: &str, name: &str) -> Self {
        Self {
            cluster: String::new(),
            namespace: namespace.to_owned(),
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: name.to_owned(),
        }
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split(':').collect();
        let (cluster, namespace, rest) = match parts.as_slice() {
            [a, k, n] => ("", "", [*a, *k, *n]),
            [ns, a, k, n] => ("", *ns, [*a, *k, *n]),
            [c, ns, a, k, n] => (*c, *ns, [*a, *k, *n]),
            other => return Err(ReferenceError::Parts(text.to_owned(), other.len())),
        };
        let [api_version, kind, name] = rest;
        if !kind.starts_with(|c: char| c.is_ascii_uppercase()) {
            return Err(ReferenceError::Kind(text.to_owned(), kind.to_owned()));
        }
        if api_version.is_empty() || name.is_empty() {
            return Err(ReferenceError::Empty(text.to_owned()));
        }
        Ok(Self {
            cluster: cluster.to_owned(),
            namespace: namespace.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// Cluster and namespace are left out when empty, from the left; a cluster
/// without a namespace keeps the empty part.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.cluster.is_empty() {
            write!(f, "{}:{}:", self.cluster, self.namespace)?;
        } else if !self.namespace.is_empty() {
            write!(f, "{}:", self.namespace)?;
        }
        write!(f, "{}:{}:{}", self.api_version, self.kind, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_may_be_left_out_from_the_left() {
        let r: Reference = "apps/v1:Deployment:web".parse().unwrap();
        assert_eq!((r.cluster.as_str(), r.namespace.as_str()), ("", ""));
        assert_eq!(r.api_version, "apps/v1");
        let r: Reference = "edge-1:shop:v1:Pod:9.web-0".parse().unwrap();
        assert_eq!(r.cluster, "edge-1");
        assert_eq!(r.name, "9.web-0");
    }

    #[test]
    fn errors_name_the_text_and_the_mend() {
        let e = "Pod:web".parse::<Reference>().unwrap_err().to_string();
        assert!(
            e.contains("\"Pod:web\" has 2 parts") && e.contains("apiVersion:Kind:name"),
            "{e}"
        );
        assert!("v1:pod:web".parse::<Reference>().is_err());
        assert!("v1:Pod:".parse::<Reference>().is_err());
        assert!("a:b:c:v1:Pod:x".parse::<Reference>().is_err());
    }

    proptest! {
        #[test]
        fn any_text_parses_or_errs(text in ".{0,60}") {
            let _ = text.parse::<Reference>();
        }

        #[test]
        fn text_and_back(c in "[a-z0-9-]{0,5}", ns in "[a-z0-9-]{0,5}", a in "[a-z./0-9]{1,8}",
                         k in "[A-Z][a-zA-Z]{0,6}", n in "[a-z0-9.-]{1,9}") {
            let r = Reference { cluster: c, namespace: ns, api_version: a, kind: k, name: n };
            prop_assert_eq!(r.to_string().parse::<Reference>().unwrap(), r);
        }
    }
}
