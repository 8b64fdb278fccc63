use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::SystemTime,
};

/// Changes in the log; a caller with an older version requests all nodes.
const MOST: usize = 4096;

/// A log of the nodes whose lines changed, for versioned answers.
///
/// Record each change once lines show it. Answer a request with a
/// [`known_version`](crate::CostRequest::known_version) with the lines of the eligible nodes and
/// of those [changed since](Self::since); a node that lost its cost gets a negative one. Set
/// [`changed_since`](crate::CostAnswer::changed_since) to that version. Read version and changes
/// before the lines. An answer for the requesting pod only has no version.
///
/// ```
/// use tautline_sdk::{ChangeLog, CostAnswer, CostRequest};
///
/// fn answer(changes: &ChangeLog, request: &CostRequest) -> CostAnswer {
///     let mut answer = CostAnswer::default();
///     answer.version = changes.version();
///     let mut nodes: Vec<&str> = request.eligible_nodes.iter().map(String::as_str).collect();
///     if let Some(changed) = changes.since(request.known_version) {
///         answer.changed_since = request.known_version;
///         nodes.extend(changed);
///     }
///     nodes.sort();
///     nodes.dedup();
///     nodes.into_iter().for_each(|node| answer.usable(node, 1, ""));
///     answer
/// }
///
/// let mut changes = ChangeLog::default();
/// let known_version = changes.version();
/// changes.record_node("node-a");
/// let request = CostRequest { known_version, ..CostRequest::default() };
/// assert_eq!(answer(&changes, &request).nodes()[0].node, "node-a");
/// ```
#[derive(Clone, Debug)]
pub struct ChangeLog {
    /// From a start that is unique to the process.
    version: u64,
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
    /// Records that a node's line may have changed.
    pub fn record_node(&mut self, name: &str) {
        if self.log.len() >= MOST {
            self.log.pop_front();
        }
        self.log.push_back(name.into());
        self.version += 1;
    }

    /// Records that all lines may have changed.
    pub fn record_all(&mut self) {
        self.log.clear();
        self.version += 1;
    }

    /// The version of answers that are made now.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The nodes that changed since a version; `None` if it is too old or of another process.
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
        #[test]
        fn since_gives_every_change(steps in prop::collection::vec(0..40_usize, 0..60)) {
            let mut changes = ChangeLog::default();
            let start = changes.version();
            // The nodes changed since each version; `None` if all may have.
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
                let changed = changes.since(*version);
                let changed = changed.map(|t| t.into_iter().map(str::to_owned).collect());
                prop_assert_eq!(&changed, nodes);
            }
        }
    }

    #[test]
    fn since_gives_none_for_old_versions() {
        let mut changes = ChangeLog::default();
        let first = changes.version();
        (0..MOST).for_each(|_| changes.record_node("a"));
        assert_eq!(changes.since(first).map(|n| n.len()), Some(1));
        changes.record_node("b");
        assert_eq!(changes.since(first), None);
        assert_eq!(changes.since(first + 1).map(|n| n.len()), Some(2));
    }
}
