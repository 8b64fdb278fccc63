//! What has changed since a caller asked last. Of thousands of nodes a placed pod
//! changes one; the rest need not be said again.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::SystemTime,
};

/// So many changes are remembered: a caller that has slept for longer asks anew.
const MOST: usize = 4096;

/// Which nodes' lines have changed, to whatever question, and when.
///
/// A provider notes each change here. To a question with a
/// [`known_version`](crate::CostQuestion::known_version) it answers with the lines of
/// the eligible nodes and of those [changed since](Self::since), and names that version
/// in [`changed_since`](crate::CostAnswer::changed_since). An answer that is the asking
/// pod's alone (it has something there already) must not be numbered, and a node that has
/// no cost any longer is named, with a negative one. Version and changes are to be read
/// before the lines, and a change noted once lines show it: one lock over all will do.
#[derive(Clone, Debug)]
pub struct ChangeLog {
    /// As many changes as there were, from a start that no other process has.
    version: u64,
    /// The last of them, by node.
    log: VecDeque<Arc<str>>,
}

impl Default for ChangeLog {
    fn default() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanos = now.unwrap_or_default().as_nanos();
        Self {
            version: u64::try_from(nanos).unwrap_or(1).max(1),
            log: VecDeque::new(),
        }
    }
}

impl ChangeLog {
    /// The node's line may be another now.
    pub fn record_node(&mut self, name: &str) {
        if self.log.len() >= MOST {
            self.log.pop_front();
        }
        self.log.push_back(name.into());
        self.version += 1;
    }

    /// All lines may be others.
    pub fn record_all(&mut self) {
        self.log.clear();
        self.version += 1;
    }

    /// What answers that are made now are as of.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The nodes that have changed since a version; `None`: it is too old, or of
    /// another process.
    pub fn since(&self, version: u64) -> Option<BTreeSet<&str>> {
        let changes = usize::try_from(self.version.checked_sub(version)?).ok()?;
        let first = self.log.len().checked_sub(changes)?;
        Some(self.log.range(first..).map(|name| &**name).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is told is all that has changed, and what cannot be told is not.
        #[test]
        fn all_that_has_changed_is_told(steps in prop::collection::vec(0..40_usize, 0..60)) {
            let mut changes = ChangeLog::default();
            let start = changes.version();
            // Each version, and who has changed since; `None`: all may have.
            let mut since: Vec<(u64, Option<BTreeSet<String>>)> = Vec::new();
            for step in steps {
                since.push((changes.version(), Some(BTreeSet::new())));
                match step {
                    0 => {
                        changes.record_all();
                        since.iter_mut().for_each(|(_, nodes)| *nodes = None);
                    }
                    _ => {
                        let name = format!("n{}", step % 5);
                        changes.record_node(&name);
                        let known = since.iter_mut().filter_map(|(_, nodes)| nodes.as_mut());
                        known.for_each(|nodes| _ = nodes.insert(name.clone()));
                    }
                }
            }
            prop_assert_eq!(changes.since(changes.version()), Some(BTreeSet::new()));
            for other in [0, start - 1, changes.version() + 1, u64::MAX] {
                prop_assert_eq!(changes.since(other), None);
            }
            for (version, nodes) in &since {
                let told = changes.since(*version);
                let told = told.map(|t| t.into_iter().map(str::to_owned).collect());
                prop_assert_eq!(&told, nodes);
            }
        }
    }

    #[test]
    fn what_is_long_ago_is_not_remembered() {
        let mut changes = ChangeLog::default();
        let first = changes.version();
        (0..MOST).for_each(|_| changes.record_node("a"));
        assert_eq!(changes.since(first).map(|n| n.len()), Some(1));
        changes.record_node("b");
        assert_eq!(changes.since(first), None);
        assert_eq!(changes.since(first + 1).map(|n| n.len()), Some(2));
    }
}
