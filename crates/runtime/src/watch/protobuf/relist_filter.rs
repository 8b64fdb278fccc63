//! What was listed beside a watch that goes on from before the list.

use std::collections::HashMap;

/// Objects by key, with the version of their list. The events up to it tell of them what
/// the list had in it already: of an object that was gone and made anew meanwhile, they
/// would take away what was listed.
#[derive(Debug, Default)]
pub(super) struct RelistFilter {
    /// Of the last list.
    version: u64,
    keys: HashMap<String, u64>,
}

impl RelistFilter {
    /// A list of this version has these. Versions of a kind are numbers that grow
    /// ([KEP-5504](https://kep.k8s.io/5504)); of one that is none, all events count.
    pub(super) fn add(&mut self, version: &str, keys: impl Iterator<Item = String>) {
        self.version = version.parse().unwrap_or(0);
        self.keys.extend(keys.map(|key| (key, self.version)));
    }

    /// Whether the list says it all about an event of this version. Events come in the
    /// order of their versions: after one that is later nothing is kept.
    pub(super) fn covers(&mut self, version: &str, key: impl FnOnce() -> String) -> bool {
        if self.keys.is_empty() {
            return false;
        }
        if let Some(version) = version.parse().ok().filter(|v: &u64| *v <= self.version) {
            let listed = self.keys.get(&key());
            return listed.is_some_and(|listed| version <= *listed);
        }
        *self = Self::default();
        false
    }
}
