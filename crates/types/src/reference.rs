//! References to objects: `cluster:namespace:apiVersion:Kind:name`.

use std::{fmt, str::FromStr};

use crate::{dns, text};

/// A reference to one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "schema",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", default)
)]
pub struct Reference {
    /// The cluster; empty for this cluster.
    pub cluster: String,
    /// The namespace; empty for objects without one.
    pub namespace: String,
    /// The API version, for example "v1" or "apps/v1".
    pub api_version: String,
    /// The kind, for example "Pod".
    pub kind: String,
    /// The object's name.
    pub name: String,
}

/// The error of a text that is not a reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The text has the wrong number of parts; the fields are the text and that number.
    #[error(
        "reference {0:?} has {1} parts; write [[cluster:]namespace:]apiVersion:Kind:name (3 to 5 parts)"
    )]
    Parts(String, usize),
    /// The kind is malformed; the fields are the text and its kind.
    #[error(
        "reference {0:?}: the kind {1:?} must be a capital letter and up to 62 letters and digits, \
         as in v1:Pod:web-0"
    )]
    Kind(String, String),
    /// The API version or the name is empty; the field is the text.
    #[error("reference {0:?}: apiVersion and name must not be empty, as in v1:Pod:web-0")]
    Empty(String),
    /// The API version is malformed; the fields are the text and the problem.
    #[error("reference {0:?}: {1}")]
    ApiVersion(String, ApiVersionError),
}

/// The error of a text that is not an API version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no API version; write VERSION or GROUP/VERSION, as in v1 or apps/v1: DNS names in \
     lower case, up to {MAX_API_VERSION_BYTES} characters"
)]
pub struct ApiVersionError(String);

/// The maximum length of an API version, in bytes.
pub const MAX_API_VERSION_BYTES: usize = 253;
const QUOTED_CHARS: usize = 80;

/// Checks that a text is `VERSION` or `GROUP/VERSION`. Tautline puts it into a URL, which it
/// requests with its own rights.
///
/// # Errors
/// The text has neither form; the error quotes it and describes both.
pub fn check_api_version(text: &str) -> Result<(), ApiVersionError> {
    let (group, version) = match text.split_once('/') {
        Some((group, version)) => (Some(group), version),
        None => (None, text),
    };
    let valid = text.len() <= MAX_API_VERSION_BYTES
        && group.is_none_or(dns::is_subdomain)
        && dns::is_label(version)
        && version.starts_with(|c: char| c.is_ascii_lowercase());
    if valid {
        return Ok(());
    }
    let quoted = text::sanitize(text, QUOTED_CHARS).into_owned();
    Err(ApiVersionError(quoted))
}

fn is_kind(kind: &str) -> bool {
    kind.len() <= 63
        && kind.starts_with(|c: char| c.is_ascii_uppercase())
        && kind.bytes().all(|b| b.is_ascii_alphanumeric())
}

impl Reference {
    /// Returns the reference of a pod in this cluster.
    pub fn pod(namespace: &str, name: &str) -> Self {
        Self {
            cluster: String::new(),
            namespace: namespace.to_owned(),
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns whether this is a pod of this cluster. A pod of another cluster may have the same
    /// namespace and name.
    pub fn is_local_pod(&self) -> bool {
        self.kind == "Pod" && self.cluster.is_empty()
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
        if !is_kind(kind) {
            return Err(ReferenceError::Kind(text.to_owned(), kind.to_owned()));
        }
        if api_version.is_empty() || name.is_empty() {
            return Err(ReferenceError::Empty(text.to_owned()));
        }
        check_api_version(api_version)
            .map_err(|e| ReferenceError::ApiVersion(text.to_owned(), e))?;
        Ok(Self {
            cluster: cluster.to_owned(),
            namespace: namespace.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// Leaves out empty parts at the start. After a cluster, an empty namespace is written as an empty
/// part.
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
    fn reference_parts_are_optional_from_the_left() {
        let r: Reference = "apps/v1:Deployment:web".parse().unwrap();
        assert_eq!((r.cluster.as_str(), r.namespace.as_str()), ("", ""));
        assert_eq!(r.api_version, "apps/v1");
        let r: Reference = "edge-1:shop:v1:Pod:9.web-0".parse().unwrap();
        assert_eq!(r.cluster, "edge-1");
        assert_eq!(r.name, "9.web-0");
    }

    #[test]
    fn reference_errors_have_the_text_and_the_fix() {
        let e = "Pod:web".parse::<Reference>().unwrap_err().to_string();
        assert!(
            e.contains("\"Pod:web\" has 2 parts") && e.contains("apiVersion:Kind:name"),
            "{e}"
        );
        assert!("v1:pod:web".parse::<Reference>().is_err());
        assert!("v1:Pod:".parse::<Reference>().is_err());
        assert!("a:b:c:v1:Pod:x".parse::<Reference>().is_err());
    }

    #[test]
    fn check_api_version_accepts_version_and_group() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}/v1", "a".repeat(58));
        for good in [
            "v1",
            "apps/v1",
            "networkservicemesh.io/v1beta1",
            "x-1.y/v",
            &longest,
        ] {
            assert_eq!(check_api_version(good), Ok(()), "{good}");
        }
        let long = format!("{longest}0");
        for bad in [
            "",
            "/",
            "/v1",
            "apps/",
            "apps/v1/namespaces",
            "v1/namespaces/kube-system",
            "../api/v1",
            "..",
            "v1?limit=1",
            "v1#x",
            "v1%2f",
            "Apps/v1",
            "a..b/v1",
            "-a/v1",
            "a-/v1",
            "1",
            "v1 ",
            "v1\n",
            "\u{fc}/v1",
            &long,
        ] {
            let error = check_api_version(bad).unwrap_err().to_string();
            assert!(
                error.contains("GROUP/VERSION") && error.len() < 600,
                "{error}"
            );
        }
        assert!("../../api:Pod:x".parse::<Reference>().is_err());
        assert!("v1:Pod/x:y".parse::<Reference>().is_err());
    }

    proptest! {
        #[test]
        fn reference_rejects_api_versions_with_separators(text in "([a-z0-9./?#%A-Z -]|\\.\\./){0,20}") {
            if check_api_version(&text).is_ok() {
                prop_assert!(text.split('/').count() <= 2, "{text}");
                prop_assert!(text.split(['/', '.']).all(dns::is_label), "{text}");
            }
        }

        #[test]
        fn parse_never_panics(text in ".{0,60}") {
            let _ = text.parse::<Reference>();
        }

        #[test]
        fn text_and_back(c in "[a-z0-9-]{0,5}", ns in "[a-z0-9-]{0,5}", a in "(([a-z]{1,3}[.])?[a-z0-9]{1,4}/)?[a-z][a-z0-9]{0,4}",
                         k in "[A-Z][a-zA-Z]{0,6}", n in "[a-z0-9.-]{1,9}") {
            let r = Reference { cluster: c, namespace: ns, api_version: a, kind: k, name: n };
            prop_assert_eq!(r.to_string().parse::<Reference>().unwrap(), r);
        }
    }
}
