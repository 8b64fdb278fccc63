//! The watches on the kinds of targets: complete lists, and kinds that cannot be watched.

use std::collections::BTreeMap;

use tautline_core::model::{Target, TargetKind};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KindState {
    /// All its objects are known, or it has none.
    pub listed: bool,
    /// The reason why it cannot be watched.
    pub missing: Option<String>,
}

/// States by API version and kind. A kind that is not in here is not listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KindStates(BTreeMap<String, KindState>);

impl KindStates {
    pub(crate) fn insert(&mut self, target: &Target, state: KindState) {
        self.0.insert(key(target), state);
    }

    /// Whether an object of the target's kind that is not known does not exist.
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
