//! The state of the watches on the kinds of targets: complete lists, and kinds that cannot be
//! watched.

use std::collections::BTreeMap;

use tautline_core::model::{Target, TargetKind};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KindState {
    /// True if all objects of the kind are known, or there are none.
    pub listed: bool,
    /// The reason why the kind cannot be watched.
    pub missing: Option<String>,
}

/// The states by API version and kind. A kind without an entry is not listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KindStates(BTreeMap<String, KindState>);

impl KindStates {
    pub(crate) fn insert(&mut self, target: &Target, state: KindState) {
        self.0.insert(key(target), state);
    }

    /// Returns whether all objects of the target's kind are known, so that an unknown one does not
    /// exist.
    pub(crate) fn is_listed(&self, target: &Target) -> bool {
        target.kind == TargetKind::Pod || self.0.get(&key(target)).is_some_and(|s| s.listed)
    }

    pub(crate) fn missing(&self, target: &Target) -> Option<&str> {
        self.0.get(&key(target))?.missing.as_deref()
    }
}

fn key(target: &Target) -> String {
    let (api_version, kind) = target.selected_kind();
    [api_version, ":", kind].concat()
}
