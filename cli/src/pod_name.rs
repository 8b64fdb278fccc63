//! A pod on the command line: `NAMESPACE/NAME`, or `NAME` with `-n`.

use anyhow::{Result, bail};

use crate::scope;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodName {
    namespace: Option<String>,
    pub(crate) name: String,
}

impl PodName {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(scope::name(namespace)?), name),
            None => (None, text),
        };
        let name = scope::name(name)?;
        Ok(Self { namespace, name })
    }

    /// Returns the namespace of this name, else the namespace of the flag `-n`.
    ///
    /// # Errors
    /// The two namespaces differ.
    pub(crate) fn namespace<'a>(&'a self, flag: Option<&'a str>) -> Result<Option<&'a str>> {
        let own = self.namespace.as_deref();
        if let (Some(a), Some(b)) = (own, flag)
            && a != b
        {
            let name = &self.name;
            bail!("the pod is {a}/{name}, and -n says {b}; leave one out");
        }
        Ok(own.or(flag))
    }
}

/// Returns the error text for a pod that does not exist, with pods of its name in other namespaces.
pub(crate) fn absent<'a>(
    namespace: &str,
    name: &str,
    others: impl IntoIterator<Item = &'a str>,
) -> String {
    let others: Vec<String> = others
        .into_iter()
        .map(|ns| format!("{ns}/{name}"))
        .collect();
    match others.as_slice() {
        [] => format!("there is no pod {namespace}/{name}, nor one of that name in any namespace"),
        some => format!(
            "there is no pod {namespace}/{name}; there is {}",
            some.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_comes_from_the_name_or_the_flag() {
        let namespace = |text: &str, flag: Option<&'static str>| {
            let name = PodName::parse(text).unwrap();
            let namespace = name.namespace(flag).map(|n| n.map(str::to_owned));
            (namespace.map_err(|e| e.to_string()), name.name)
        };
        let ml = || Ok(Some("ml".to_owned()));
        assert_eq!(namespace("ml/p", None), (ml(), "p".into()));
        assert_eq!(namespace("ml/p", Some("ml")), (ml(), "p".into()));
        assert_eq!(namespace("p", Some("ml")), (ml(), "p".into()));
        assert_eq!(namespace("p", None), (Ok(None), "p".into()));
        let (differ, _) = namespace("ml/p", Some("web"));
        assert!(differ.unwrap_err().contains("leave one out"));
        for bad in ["A/p", "ml/", "ml/p/q", ""] {
            assert!(PodName::parse(bad).is_err(), "{bad}");
        }
    }
}
