//! Turns readings of the cards and the node's settings into the cards that the agent writes to its
//! node and gives to containers.

use std::sync::Arc;

use tautline_gpu_placement::node_inventory::NodeInventory;
use tokio::sync::watch;

use crate::{
    channels::set,
    dra::Delivery,
    inventory,
    limits::Mode,
    metrics::Metrics,
    mig::OwnInstances,
    node::{NodeEntries, NodeFacts},
    reader::{ReaderState, Snapshot},
};

/// The values that the rest of the agent follows.
pub(crate) struct CardsOutput {
    /// All cards of the node.
    pub inventory: watch::Sender<Arc<NodeInventory>>,
    /// The cards that the agent gives out; empty until the node is read, and while NVIDIA's device
    /// plugin owns the cards.
    pub given: watch::Sender<Arc<NodeInventory>>,
    /// The labels and the inventory to write; `None` until the reader has reported the node's
    /// cards.
    pub entries: watch::Sender<Option<Arc<NodeEntries>>>,
    /// The mode of limits that is in force.
    pub mode: watch::Sender<Mode>,
}

/// Turns readings into the values of [`CardsOutput`].
pub(crate) struct Cards {
    pub snapshots: watch::Receiver<Snapshot>,
    pub facts: watch::Receiver<Option<NodeFacts>>,
    /// The MIG instances that the agent has made.
    pub own: watch::Receiver<OwnInstances>,
    /// The mode of limits on nodes without the label `tautline.io/gpu-limits`.
    pub default_mode: Mode,
    /// The way in which containers get cards: with DRA, ResourceSlices have the inventory.
    pub delivery: Delivery,
    pub output: CardsOutput,
    pub metrics: Metrics,
}

impl Cards {
    /// Publishes the values at each change.
    pub async fn run(mut self) {
        let mut restarts = 0;
        let mut wrong = None;
        loop {
            let snapshot = self.snapshots.borrow_and_update().clone();
            let facts = self.facts.borrow_and_update().clone();
            self.own.mark_unchanged();
            let new_restarts = snapshot.restarts - restarts;
            self.metrics.reader_restarts.inc_by(new_restarts);
            restarts = snapshot.restarts;
            let label = facts.as_ref().and_then(|facts| facts.limits.as_deref());
            let mode = match label.map(str::parse).transpose() {
                Ok(mode) => {
                    wrong = None;
                    mode.unwrap_or(self.default_mode)
                }
                Err(error) => {
                    let used = self.default_mode;
                    if wrong.as_ref() != Some(&error) {
                        tracing::warn!(%error, %used, "the node's label tautline.io/gpu-limits is not used");
                    }
                    wrong = Some(error);
                    used
                }
            };
            set(&self.output.mode, mode);
            self.publish(&snapshot, facts.as_ref(), mode);
            let more = tokio::select! {
                changed = self.snapshots.changed() => changed,
                changed = self.facts.changed() => changed,
                changed = self.own.changed() => changed,
            };
            if more.is_err() {
                return;
            }
        }
    }

    fn publish(&self, snapshot: &Snapshot, facts: Option<&NodeFacts>, mode: Mode) {
        let reading = snapshot.reading.as_deref();
        let cards = reading.map(|r| inventory::inventory(r, &mode.to_string(), &self.own.borrow()));
        let cards = Arc::new(cards.unwrap_or_default());
        self.metrics.see_cards(&cards);
        if let Some(mut entries) = entries(snapshot, &cards) {
            if self.delivery == Delivery::Dra {
                entries.inventory = None;
            }
            set(&self.output.entries, Some(Arc::new(entries)));
        }
        let given = match facts {
            Some(facts) if !facts.other_owner => Arc::clone(&cards),
            _ => Arc::default(),
        };
        set(&self.output.inventory, cards);
        set(&self.output.given, given);
    }
}

/// Returns the labels and the inventory to write; `None` while the cards are not known.
fn entries(snapshot: &Snapshot, cards: &NodeInventory) -> Option<NodeEntries> {
    match (&snapshot.reading, &snapshot.state) {
        (None, ReaderState::NoDriver(_)) => Some(NodeEntries::default()),
        (None, _) => None,
        (Some(_), _) if cards.cards.is_empty() => Some(NodeEntries::default()),
        (Some(reading), _) => Some(NodeEntries {
            labels: inventory::labels(reading),
            inventory: serde_json::to_string(cards).ok(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use tautline_nvml::{Card, Reading};

    use super::*;

    fn snapshot(cards: usize, state: ReaderState) -> Snapshot {
        let card = |index: usize| Card {
            uuid: format!("GPU-{index}"),
            index: index as u32,
            product: "NVIDIA H200".into(),
            memory_bytes: 141 << 30,
            ..Card::default()
        };
        Snapshot {
            reading: Some(Arc::new(Reading {
                cards: (0..cards).map(card).collect(),
                ..Reading::default()
            })),
            state,
            ..Snapshot::default()
        }
    }

    fn cards(snapshot: Snapshot, facts: Option<NodeFacts>) -> Cards {
        Cards {
            snapshots: watch::channel(snapshot).1,
            facts: watch::channel(facts).1,
            own: watch::channel(OwnInstances::default()).1,
            default_mode: Mode::None,
            delivery: Delivery::default(),
            output: CardsOutput {
                inventory: watch::Sender::default(),
                given: watch::Sender::default(),
                entries: watch::Sender::default(),
                mode: watch::Sender::default(),
            },
            metrics: Metrics::default(),
        }
    }

    fn published(snapshot: Snapshot, facts: Option<NodeFacts>) -> Cards {
        let cards = cards(snapshot.clone(), facts.clone());
        cards.publish(&snapshot, facts.as_ref(), Mode::None);
        cards
    }

    #[test]
    fn cards_are_given_out_unless_nvidias_plugin_owns_them() {
        let given = |facts| {
            let all = published(snapshot(2, ReaderState::Reading), facts);
            let written = all.output.entries.borrow().clone().unwrap();
            assert!(written.inventory.as_deref().unwrap().contains("GPU-1"));
            assert_eq!(written.labels["nvidia.com/gpu.count"], "2");
            all.output.given.borrow().cards.len()
        };
        let owned = |other_owner| {
            Some(NodeFacts {
                other_owner,
                ..NodeFacts::default()
            })
        };
        assert_eq!(
            (given(None), given(owned(true)), given(owned(false))),
            (0, 0, 2)
        );
    }

    #[test]
    fn with_dra_the_node_has_no_inventory() {
        let snapshot = snapshot(1, ReaderState::Reading);
        let all = Cards {
            delivery: Delivery::Dra,
            ..cards(snapshot.clone(), None)
        };
        all.publish(&snapshot, None, Mode::None);
        let written = all.output.entries.borrow().clone().unwrap();
        assert_eq!(
            (written.labels.len() > 2, written.inventory.as_deref()),
            (true, None)
        );
    }

    #[test]
    fn node_without_driver_has_nothing_written_and_an_unread_one_stays() {
        let unread = Snapshot::default();
        let all = published(unread, None);
        assert!(all.output.entries.borrow().is_none());
        let none = Snapshot {
            state: ReaderState::NoDriver("no library".into()),
            ..Snapshot::default()
        };
        let all = published(none, None);
        assert_eq!(
            all.output.entries.borrow().as_deref(),
            Some(&NodeEntries::default())
        );
    }

    #[tokio::test]
    async fn label_of_the_node_decides_on_limits() {
        let (labels, facts) = watch::channel(None);
        let (_reader, snapshots) = watch::channel(Snapshot::default());
        let (_keeper, own) = watch::channel(OwnInstances::default());
        let all = Cards {
            snapshots,
            facts,
            own,
            default_mode: Mode::Timeslice,
            ..cards(Snapshot::default(), None)
        };
        let mut mode = all.output.mode.subscribe();
        tokio::spawn(all.run());
        for (label, expected) in [
            (Some("mps"), Mode::Mps),
            (None, Mode::Timeslice),
            (Some("none"), Mode::None),
            (Some("often"), Mode::Timeslice),
        ] {
            labels.send_replace(Some(NodeFacts {
                limits: label.map(str::to_owned),
                ..NodeFacts::default()
            }));
            let wanted = mode.wait_for(|mode| *mode == expected);
            let patience = std::time::Duration::from_secs(30);
            let found = tokio::time::timeout(patience, wanted).await;
            found.unwrap().unwrap();
        }
    }
}
