//! Filters a watch that continues from before a list of additional objects.

use std::collections::HashMap;

/// Keys of listed objects with the version of their list. Events up to that version are outdated
/// for them: that of an object deleted and recreated in between would remove the listed one.
#[derive(Debug, Default)]
pub(super) struct RelistFilter {
    /// The version of the last list.
    version: u64,
    keys: HashMap<String, u64>,
}

impl RelistFilter {
    /// Adds the keys of a list with this version. Versions of a kind are growing numbers
    /// ([KEP-5504](https://kep.k8s.io/5504)); if one is not a number, no event is skipped.
    pub(super) fn add(&mut self, version: &str, keys: impl Iterator<Item = String>) {
        self.version = version.parse().unwrap_or(0);
        self.keys.extend(keys.map(|key| (key, self.version)));
    }

    /// Whether the list already covers an event of this version. Events arrive in the order of
    /// their versions: a later one clears the filter.
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
