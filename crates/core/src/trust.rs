//! Limits one tenant's effect on other tenants' pods, by trusted namespaces and annotation keys.

use std::{collections::BTreeSet, fmt};

/// The default namespace of Tautline.
pub const OWN_NAMESPACE: &str = "tautline-system";

/// Namespaces whose Services and configuration apply to every namespace, not only to their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedNamespaces {
    all: bool,
    names: BTreeSet<Box<str>>,
}

impl TrustedNamespaces {
    /// Trusts every namespace, for clusters with one tenant.
    pub fn all() -> Self {
        Self {
            all: true,
            names: BTreeSet::new(),
        }
    }

    /// Trusts the namespaces `names`; `*` among them stands for all namespaces.
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Self {
        let names: BTreeSet<Box<str>> = names.into_iter().map(|n| n.as_ref().into()).collect();
        Self {
            all: names.contains("*"),
            names,
        }
    }

    /// Returns whether objects of the namespace apply to all namespaces.
    pub fn contains(&self, namespace: &str) -> bool {
        self.all || self.names.contains(namespace)
    }

    /// Returns whether an object of the namespace `object` applies to workloads of the namespace
    /// `workload` (`None` if unknown).
    pub fn allows(&self, object: &str, workload: Option<&str>) -> bool {
        self.contains(object) || workload == Some(object)
    }
}

impl<S: AsRef<str>> FromIterator<S> for TrustedNamespaces {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Self::new(names)
    }
}

impl Default for TrustedNamespaces {
    fn default() -> Self {
        Self::new([OWN_NAMESPACE])
    }
}

impl fmt::Display for TrustedNamespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all {
            return f.write_str("*");
        }
        for (i, name) in self.names.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}

/// An annotation key, or a prefix of keys such as `nvidia.com/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPattern {
    text: Box<str>,
    prefix: bool,
}

impl KeyPattern {
    /// Returns whether the key matches.
    pub fn matches(&self, key: &str) -> bool {
        if self.prefix {
            key.starts_with(&*self.text)
        } else {
            key == &*self.text
        }
    }
}

impl From<&str> for KeyPattern {
    fn from(text: &str) -> Self {
        let prefix = text.strip_suffix('*');
        Self {
            text: prefix.unwrap_or(text).into(),
            prefix: prefix.is_some(),
        }
    }
}

/// The annotation keys that the allocators of one rule, or of every rule, may write on pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatorKeys {
    /// The rule whose allocators may write the keys; `None` for every rule.
    rule: Option<Box<str>>,
    keys: KeyPattern,
}

impl AllocatorKeys {
    /// Returns whether the allocator of `rule` may write `key`.
    pub fn allows(&self, rule: &str, key: &str) -> bool {
        self.rule.as_deref().is_none_or(|r| r == rule) && self.keys.matches(key)
    }
}

impl From<&str> for AllocatorKeys {
    fn from(text: &str) -> Self {
        let (rule, keys) = match text.split_once('=') {
            Some((rule, keys)) => (Some(rule.into()), keys),
            None => (None, text),
        };
        Self {
            rule,
            keys: keys.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trusted_namespaces_default_and_star() {
        let default = TrustedNamespaces::default();
        assert!(default.contains("tautline-system") && !default.contains("shop"));
        let some = TrustedNamespaces::new(["infra", "gpu"]);
        assert!(some.contains("infra") && !some.contains("tautline-system"));
        assert_eq!(some.to_string(), "gpu,infra");
        let all = TrustedNamespaces::new(["infra", "*"]);
        assert!(all.contains("shop"));
        assert_eq!(all.to_string(), "*");
        assert!(!TrustedNamespaces::new::<&str>([]).contains(""));
    }

    #[test]
    fn trusted_namespaces_allow_own_and_trusted_objects() {
        let trusted = TrustedNamespaces::from_iter(["system"]);
        assert!(trusted.allows("system", Some("shop")) && trusted.allows("system", None));
        assert!(trusted.allows("shop", Some("shop")));
        assert!(!trusted.allows("shop", Some("bank")) && !trusted.allows("shop", None));
        assert!(TrustedNamespaces::all().allows("shop", Some("bank")));
    }

    #[test]
    fn key_pattern_star_matches_prefix() {
        let group = KeyPattern::from("nvidia.com/*");
        assert!(group.matches("nvidia.com/gpu") && !group.matches("nvidia.com.evil/gpu"));
        let one = KeyPattern::from("a/b");
        assert!(one.matches("a/b") && !one.matches("a/bc"));
    }

    #[test]
    fn allocator_keys_may_be_limited_to_a_rule() {
        let any = AllocatorKeys::from("tautline.io/gpu-*");
        assert!(any.allows("gpu-slice", "tautline.io/gpu-devices"));
        assert!(!any.allows("gpu-slice", "tautline.io/other"));
        let fpga = AllocatorKeys::from("fpga=example.com/fpga");
        assert!(fpga.allows("fpga", "example.com/fpga"));
        assert!(!fpga.allows("gpu-slice", "example.com/fpga"));
    }
}
