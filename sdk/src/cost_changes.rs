//! The log of nodes whose costs have changed, for callers that store costs.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
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
pub struct CostChanges(watch::Sender<Log>);

#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The number of changes so far.
    count: u64,
    nodes: VecDeque<Arc<str>>,
}

impl CostChanges {
    /// Reports that the costs of a node may have changed.
    pub fn changed(&self, node: &str) {
        self.0.send_modify(|log| {
            if log.nodes.len() >= MAX_CHANGES {
                log.nodes.pop_front();
            }
            log.nodes.push_back(node.into());
            log.count += 1;
        });
    }

    /// Reports that all costs may have changed.
    pub fn changed_all(&self) {
        self.0.send_modify(|log| {
            log.nodes.clear();
            log.count += 1;
        });
    }

    /// Returns whether a caller follows the changes now. If not, a provider need not look for them.
    pub fn are_watched(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Returns a receiver that is notified of changes after this call.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Log> {
        self.0.subscribe()
    }

    /// Returns the nodes whose costs may have changed since `mark`, which advances to now; `None`
    /// means all. For tests of providers.
    #[doc(hidden)]
    pub fn since(&self, mark: &mut u64) -> Option<BTreeSet<Arc<str>>> {
        let log = self.0.borrow();
        let count = log.count - *mark;
        *mark = log.count;
        let count = usize::try_from(count).ok()?;
        let first = log.nodes.len().checked_sub(count)?;
        Some(log.nodes.range(first..).cloned().collect())
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
            let mut expected = Some(BTreeSet::new());
            for step in steps {
                match (step, &mut expected) {
                    (0, expected) => {
                        changes.changed_all();
                        *expected = None;
                    }
                    (1..10, expected) => {
                        prop_assert_eq!(&changes.since(&mut mark), &*expected);
                        *expected = Some(BTreeSet::new());
                    }
                    (_, expected) => {
                        let name: Arc<str> = format!("n{}", step % 5).into();
                        changes.changed(&name);
                        if let Some(nodes) = expected {
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
        assert_eq!(changes.since(&mut 0), Some(["a".into()].into()));
        changes.changed("b");
        assert_eq!(changes.since(&mut mark), None);
        assert_eq!(changes.since(&mut mark), Some(BTreeSet::new()));
    }
}
