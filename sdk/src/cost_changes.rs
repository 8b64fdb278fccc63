//! The log of nodes whose costs have changed, for callers that store costs.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

/// The maximum number of changes in the log; a stream that is further behind asks about all nodes.
const MAX_CHANGES: usize = 4096;

/// The changes of a provider's costs. A provider that returns them from
/// [`RuleProvider::changes`](crate::RuleProvider::changes) is asked ahead of time, for all pods of
/// a kind at once, and again for the nodes that it names here. So kube-scheduler does not wait for
/// it.
///
/// Report a change once [`endpoint_cost`](crate::RuleProvider::endpoint_cost) shows it. Clones
/// share the changes.
///
/// ```
/// use std::sync::atomic::{AtomicI64, Ordering};
///
/// use tautline_sdk::{CostAnswer, CostChanges, CostRequest, ProviderError, RuleProvider};
///
/// /// All nodes cost the same.
/// #[derive(Default)]
/// struct Flat {
///     cost: AtomicI64,
///     changes: CostChanges,
/// }
///
/// impl Flat {
///     fn set(&self, cost: i64) {
///         self.cost.store(cost, Ordering::Relaxed);
///         self.changes.changed_all();
///     }
/// }
///
/// impl RuleProvider for Flat {
///     async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
///         let cost = self.cost.load(Ordering::Relaxed);
///         Ok(request.eligible_nodes.into_iter().map(|node| (node, cost)).collect())
///     }
///     fn changes(&self) -> Option<&CostChanges> {
///         Some(&self.changes)
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct CostChanges(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    log: Mutex<Log>,
    notice: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Log {
    /// The number of changes so far.
    count: u64,
    nodes: VecDeque<Arc<str>>,
}

/// The costs that have changed since a mark.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The costs of these nodes may have changed.
    Nodes(BTreeSet<Arc<str>>),
    /// All costs may have changed.
    All,
}

impl CostChanges {
    /// Reports that the costs of a node may have changed.
    pub fn changed(&self, node: &str) {
        {
            let mut log = self.log();
            if log.nodes.len() >= MAX_CHANGES {
                log.nodes.pop_front();
            }
            log.nodes.push_back(node.into());
            log.count += 1;
        }
        self.0.notice.send_replace(());
    }

    /// Reports that all costs may have changed.
    pub fn changed_all(&self) {
        {
            let mut log = self.log();
            log.nodes.clear();
            log.count += 1;
        }
        self.0.notice.send_replace(());
    }

    /// Returns whether a caller follows the changes now. If not, a provider need not look for them.
    pub fn are_watched(&self) -> bool {
        self.0.notice.receiver_count() > 0
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver that is notified of changes after this call.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.0.notice.subscribe()
    }

    /// Returns the changes since `mark`, which advances to now; for tests of providers.
    #[doc(hidden)]
    pub fn since(&self, mark: &mut u64) -> Changed {
        let log = self.log();
        let count = log.count - *mark;
        *mark = log.count;
        let first = usize::try_from(count).ok();
        match first.and_then(|count| log.nodes.len().checked_sub(count)) {
            Some(first) => Changed::Nodes(log.nodes.range(first..).cloned().collect()),
            None => Changed::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn since_gives_every_change_once(steps in prop::collection::vec(0..40_usize, 0..60)) {
            let (changes, mut mark) = (CostChanges::default(), 0);
            let mut expected = Changed::Nodes(BTreeSet::new());
            for step in steps {
                match (step, &mut expected) {
                    (0, expected) => {
                        changes.changed_all();
                        *expected = Changed::All;
                    }
                    (1..10, expected) => {
                        prop_assert_eq!(&changes.since(&mut mark), &*expected);
                        *expected = Changed::Nodes(BTreeSet::new());
                    }
                    (_, expected) => {
                        let name: Arc<str> = format!("n{}", step % 5).into();
                        changes.changed(&name);
                        if let Changed::Nodes(nodes) = expected {
                            nodes.insert(name);
                        }
                    }
                }
            }
            prop_assert_eq!(changes.since(&mut mark), expected);
        }
    }

    #[test]
    fn whoever_is_far_behind_asks_about_all() {
        let (changes, mut mark) = (CostChanges::default(), 0);
        (0..MAX_CHANGES).for_each(|_| changes.changed("a"));
        assert_eq!(changes.since(&mut 0), Changed::Nodes(["a".into()].into()));
        changes.changed("b");
        assert_eq!(changes.since(&mut mark), Changed::All);
        assert_eq!(changes.since(&mut mark), Changed::Nodes(BTreeSet::new()));
    }
}
