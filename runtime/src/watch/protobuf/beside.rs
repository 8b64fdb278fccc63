//! What was listed beside a watch that goes on from before the list.

use std::collections::HashSet;

/// Objects by key, as of a version. The events up to it tell of them what the list had in
/// it already: of an object that was gone and made anew meanwhile, they would take away
/// what was listed.
#[derive(Debug, Default)]
pub(super) struct Beside {
    version: u64,
    keys: HashSet<String>,
}

impl Beside {
    /// A list of this version has these. Versions of a kind are numbers that grow
    /// ([KEP-5504](https://kep.k8s.io/5504)); of one that is none, all events count.
    pub(super) fn new(version: &str, keys: impl Iterator<Item = String>) -> Self {
        Self {
            version: version.parse().unwrap_or(0),
            keys: keys.collect(),
        }
    }

    /// Whether the list says it all about an event of this version. Events come in the
    /// order of their versions: after one that is later nothing is kept.
    pub(super) fn has(&mut self, version: &str, key: impl FnOnce() -> String) -> bool {
        if self.keys.is_empty() {
            return false;
        }
        if version.parse().is_ok_and(|v: u64| v <= self.version) {
            return self.keys.contains(&key());
        }
        *self = Self::default();
        false
    }
}
