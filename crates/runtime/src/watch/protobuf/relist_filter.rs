//! Filters a watch that continues from before a list of additional objects.

use std::collections::HashMap;

/// Keys of listed objects with their list's version. Earlier events are outdated for them: that of
/// an object deleted and recreated in between would remove the listed one.
#[derive(Debug, Default)]
pub(super) struct RelistFilter {
    version: u64,
    keys: HashMap<String, u64>,
}

impl RelistFilter {
    /// Adds a list's keys. Versions are growing numbers
    /// ([KEP-5504](https://kep.k8s.io/5504)); if one is not, no event is skipped.
    pub(super) fn add(&mut self, version: &str, keys: impl Iterator<Item = String>) {
        self.version = version.parse().unwrap_or(0);
        self.keys.extend(keys.map(|key| (key, self.version)));
    }

    /// Whether the list covers an event. Events arrive in order: a later one clears the filter.
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
