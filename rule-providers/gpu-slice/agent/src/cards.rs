//! From readings and the node's settings to what the agent writes and gives out.

use std::{collections::BTreeSet, sync::Arc};

use tautline_gpu_placement::node_inventory::NodeInventory;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    inventory,
    limits::{DriverRoot, Mode, smi, smi::Timeslice},
    metrics::Metrics,
    mig::OwnInstances,
    node::{NodeEntries, NodeFacts},
    reader::{ReaderState, Snapshot},
};

/// What the rest of the agent follows.
pub(crate) struct CardsOutput {
    /// The node's cards.
    pub inventory: watch::Sender<Arc<NodeInventory>>,
    /// The cards that are given out: none while NVIDIA's device plugin owns them.
    pub given: watch::Sender<Arc<NodeInventory>>,
    /// `None`: the reader has not said yet what is there.
    pub entries: watch::Sender<Option<Arc<NodeEntries>>>,
    pub mode: watch::Sender<Mode>,
}

/// Turns readings into what others follow.
pub(crate) struct Cards {
    pub snapshots: watch::Receiver<Snapshot>,
    pub facts: watch::Receiver<Option<NodeFacts>>,
    /// The MIG instances that the agent has made.
    pub own: watch::Receiver<OwnInstances>,
    /// Of nodes without the label.
    pub default_mode: Mode,
    /// The length of time slices in mode `timeslice`, with the driver that sets it.
    pub timeslice: Option<(DriverRoot, Timeslice)>,
    pub output: CardsOutput,
    pub metrics: Metrics,
}

impl Cards {
    /// Follows until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut restarts = 0;
        let mut sliced = BTreeSet::new();
        loop {
            let snapshot = self.snapshots.borrow_and_update().clone();
            let facts = self.facts.borrow_and_update().clone();
            self.own.mark_unchanged();
            self.metrics
                .reader_restarts
                .inc_by(snapshot.restarts - restarts);
            restarts = snapshot.restarts;
            let mode = self.mode(facts.as_ref());
            self.output.mode.send_if_modified(|now| {
                let changed = *now != mode;
                *now = mode;
                changed
            });
            let cards = self.publish(&snapshot, facts.as_ref(), mode);
            if mode == Mode::Timeslice {
                self.set_timeslices(&cards, &mut sliced).await;
            }
            let more = tokio::select! {
                () = stop.cancelled() => return,
                changed = self.snapshots.changed() => changed,
                changed = self.facts.changed() => changed,
                changed = self.own.changed() => changed,
            };
            if more.is_err() {
                stop.cancelled().await;
                return;
            }
        }
    }

    fn mode(&self, facts: Option<&NodeFacts>) -> Mode {
        let Some(label) = facts.and_then(|f| f.limits.as_deref()) else {
            return self.default_mode;
        };
        label.parse().unwrap_or_else(|error| {
            if *self.output.mode.borrow() != self.default_mode {
                tracing::warn!(%error, default = %self.default_mode, "the node's label tautline.io/gpu-limits is not used");
            }
            self.default_mode
        })
    }

    fn publish(
        &self,
        snapshot: &Snapshot,
        facts: Option<&NodeFacts>,
        mode: Mode,
    ) -> Arc<NodeInventory> {
        let reading = snapshot.reading.as_deref();
        let cards = reading.map(|r| inventory::inventory(r, &mode.to_string(), &self.own.borrow()));
        let cards = Arc::new(cards.unwrap_or_default());
        self.metrics.see_cards(&cards);
        if let Some(entries) = entries(snapshot, &cards) {
            set(&self.output.entries, Some(Arc::new(entries)));
        }
        let gives = facts.is_some_and(|f| !f.nvidia_plugin);
        let given = if gives {
            Arc::clone(&cards)
        } else {
            Arc::default()
        };
        set(&self.output.inventory, Arc::clone(&cards));
        set(&self.output.given, given);
        cards
    }

    async fn set_timeslices(&self, cards: &NodeInventory, sliced: &mut BTreeSet<String>) {
        let Some((driver, slice)) = &self.timeslice else {
            return;
        };
        for card in &cards.cards {
            if card.fault.is_some() || !sliced.insert(card.uuid.clone()) {
                continue;
            }
            if let Err(error) = smi::set_timeslice(driver, &card.uuid, *slice).await {
                tracing::warn!(card = card.uuid, %error, "the card keeps its time slices");
            }
        }
    }
}

/// `None`: nothing is known of the cards yet.
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

fn set<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|now| {
        let changed = *now != value;
        *now = value;
        changed
    });
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
            restarts: 0,
        }
    }

    fn cards(snapshot: Snapshot, facts: Option<NodeFacts>) -> Cards {
        Cards {
            snapshots: watch::channel(snapshot).1,
            facts: watch::channel(facts).1,
            own: watch::channel(OwnInstances::default()).1,
            default_mode: Mode::None,
            timeslice: None,
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
        let mode = cards.mode(facts.as_ref());
        cards.publish(&snapshot, facts.as_ref(), mode);
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
        let owned = |nvidia_plugin| {
            Some(NodeFacts {
                nvidia_plugin,
                limits: None,
            })
        };
        assert_eq!(
            (given(None), given(owned(true)), given(owned(false))),
            (0, 0, 2)
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

    #[test]
    fn label_of_the_node_decides_on_limits() {
        let mode = |label: &str| {
            let facts = NodeFacts {
                limits: Some(label.to_owned()),
                nvidia_plugin: false,
            };
            cards(Snapshot::default(), None).mode(Some(&facts))
        };
        assert_eq!((mode("mps"), mode("often")), (Mode::Mps, Mode::None));
    }
}
