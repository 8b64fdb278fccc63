//! Decides which of the cards in a pod's record each of its containers gets. The functions are
//! pure.

use tautline_gpu_placement::{
    containers::{PartError, parts_of},
    device_annotation::{CardShare, parse},
    names::DEVICES_ANNOTATION,
    node_inventory::{InventoryCard, MEMORY_RESOURCE, NodeInventory},
    shape::CARD_MILLI,
};

use crate::pods::PodEntry;

/// The remedy for a record that does not hold.
pub(crate) const PLACE_ANEW: &str = "delete the pod so that it is placed anew";

/// The reason why a container gets no cards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Denial {
    /// A stable code for events and metrics.
    pub code: &'static str,
    pub text: String,
    /// The remedy for the user.
    pub mend: &'static str,
}

impl Denial {
    pub fn new(code: &'static str, text: impl Into<String>, mend: &'static str) -> Self {
        let text = text.into();
        Self { code, text, mend }
    }

    /// Returns the reason for a record that does not hold; `fault` says what the annotation does.
    fn of_record(code: &'static str, fault: &str) -> Self {
        let text = format!("annotation {DEVICES_ANNOTATION}{fault}");
        Self::new(code, text, PLACE_ANEW)
    }
}

/// A card of the node and the thousandths of it that a pod or container has.
pub(crate) type Part = (InventoryCard, u16);

/// Returns the shares of the pod's record, one for each card, which is named by UUID.
pub(crate) fn shares(pod: &PodEntry, inventory: &NodeInventory) -> Result<Vec<CardShare>, Denial> {
    let record = record(pod, inventory)?;
    Ok(record.into_iter().map(|(_, share)| share).collect())
}

fn record<'a>(
    pod: &PodEntry,
    inventory: &'a NodeInventory,
) -> Result<Vec<(&'a InventoryCard, CardShare)>, Denial> {
    let text = pod.record.as_deref().ok_or_else(|| {
        Denial::new(
            "NoRecord",
            format!("the pod has no annotation {DEVICES_ANNOTATION}, which its binding writes"),
            "let Tautline's scheduler extender bind the pod (extender.bind), or delete it",
        )
    })?;
    let bad = |fault: String| Denial::of_record("BadRecord", &fault);
    let mut parts: Vec<(&InventoryCard, CardShare)> = Vec::new();
    for share in parse(text, CARD_MILLI).map_err(|error| bad(format!(": {error}")))? {
        let card = find_card(inventory, &share.card).ok_or_else(|| {
            let fault = format!(" names card {}, which the node does not have", share.card);
            Denial::of_record("UnknownCard", &fault)
        })?;
        let uuid = &card.uuid;
        match parts.iter_mut().find(|(known, _)| known.uuid == *uuid) {
            Some((_, known)) if known.start.is_some() || share.start.is_some() => {
                return Err(bad(format!(" names several MIG instances of card {uuid}")));
            }
            Some((_, known)) => known.milli = known.milli.saturating_add(share.milli),
            None => {
                let uuid = uuid.as_str().into();
                parts.push((
                    card,
                    CardShare {
                        card: uuid,
                        ..share
                    },
                ));
            }
        }
    }
    match parts.iter().find(|(_, share)| share.milli > CARD_MILLI) {
        Some((card, _)) => Err(bad(format!(
            " gives more than 1000 thousandths of card {}",
            card.uuid
        ))),
        None => Ok(parts),
    }
}

/// Returns the card that a record names by UUID or index.
pub(crate) fn find_card<'a>(inventory: &'a NodeInventory, name: &str) -> Option<&'a InventoryCard> {
    let index = name.parse::<u32>().ok();
    let mut cards = inventory.cards.iter();
    cards.find(|card| card.uuid == name || Some(card.index) == index)
}

/// Returns the container's parts of the record, sorted by index of the cards; empty if the
/// container requests no cards.
pub(crate) fn assign(
    pod: &PodEntry,
    container: &str,
    inventory: &NodeInventory,
) -> Result<Vec<Part>, Denial> {
    let at = pod.containers.iter().position(|c| *c.name == *container);
    let at = at.ok_or_else(|| {
        Denial::new(
            "UnknownContainer",
            "the pod has no such container",
            PLACE_ANEW,
        )
    })?;
    let meant = &pod.containers[at];
    if meant.asks.is_empty() {
        return Ok(Vec::new());
    }
    let record = record(pod, inventory)?.into_iter();
    let cards: Vec<Part> = record.map(|(c, share)| (c.clone(), share.milli)).collect();
    let containers: Vec<_> = pod.containers.iter().map(|c| (c.kind, c.asks)).collect();
    let taken = parts_of(&containers, at, cards, |card| card.memory_bytes);
    let mut taken = taken.map_err(|error| {
        let (text, mend) = match error {
            PartError::Short { asks, left } => {
                let left = list(&left);
                let text = format!(
                    "it needs {asks} thousandths, a part of a card on one card, and annotation \
                     {DEVICES_ANNOTATION} has {left} left"
                );
                (text, PLACE_ANEW)
            }
            PartError::TooLarge(card) => {
                let (gib, card) = (meant.asks.memory_gib, card.uuid);
                let text = format!(
                    "it requests {gib} {MEMORY_RESOURCE}, and card {card} has less memory, or does \
                     not tell it"
                );
                (text, "request less memory")
            }
        };
        Denial::new("RecordTooSmall", text, mend)
    })?;
    if let Some((card, fault)) = taken.iter().find_map(|(c, _)| Some((c, c.fault.as_ref()?))) {
        let text = format!("card {} is unhealthy: {fault}", card.uuid);
        let mend = "repair the card, or delete the pod so that it is placed anew";
        return Err(Denial::new("FaultyCard", text, mend));
    }
    taken.sort_by_key(|(card, _)| card.index);
    Ok(taken)
}

/// Formats the thousandths of several cards as text.
fn list(left: &[u16]) -> String {
    if left.is_empty() {
        return "none".to_owned();
    }
    let left: Vec<String> = left.iter().map(u16::to_string).collect();
    left.join(" and ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use tautline_core::ContainerKind as Kind;
    use tautline_gpu_placement::containers::AgentRequest;

    use super::*;
    use crate::pods::entry::ContainerEntry;

    fn inventory(cards: u32) -> NodeInventory {
        let cards = (0..cards).map(|index| InventoryCard {
            uuid: format!("GPU-{index}"),
            index,
            memory_bytes: 80 << 30,
            ..InventoryCard::default()
        });
        NodeInventory {
            cards: cards.collect(),
            ..NodeInventory::default()
        }
    }

    fn container(name: &str, kind: Kind, milli: i64, memory_gib: i64) -> ContainerEntry {
        ContainerEntry {
            name: name.into(),
            kind,
            asks: AgentRequest { milli, memory_gib },
            ..ContainerEntry::default()
        }
    }

    fn pod(record: &str, containers: &[(&str, Kind, i64, i64)]) -> PodEntry {
        let containers = containers.iter();
        PodEntry {
            record: Some(record.into()),
            containers: containers
                .map(|(n, k, milli, gib)| container(n, *k, *milli, *gib))
                .collect(),
            ..PodEntry::default()
        }
    }

    fn given(pod: &PodEntry, container: &str) -> Result<String, String> {
        let parts = assign(pod, container, &inventory(4)).map_err(|e| e.to_string())?;
        let parts: Vec<String> = parts
            .iter()
            .map(|(c, m)| format!("{}:{m}", c.index))
            .collect();
        Ok(parts.join(","))
    }

    #[test]
    fn containers_share_the_record_in_order() {
        let pod = pod(
            "GPU-2:1000,1:500",
            &[
                ("log", Kind::Main, 0, 0),
                ("half", Kind::Main, 500, 0),
                ("whole", Kind::Main, 1000, 0),
                ("more", Kind::Main, 1, 0),
            ],
        );
        assert_eq!(given(&pod, "log"), Ok(String::new()));
        assert_eq!(given(&pod, "half").unwrap(), "1:500");
        assert_eq!(given(&pod, "whole").unwrap(), "2:1000");
        let error = given(&pod, "more").unwrap_err();
        assert!(
            error.contains("needs 1 thousandths") && error.contains("has none left"),
            "{error}"
        );
        assert!(given(&pod, "x").unwrap_err().contains("no such container"));
    }

    #[test]
    fn record_names_one_instance_of_a_card() {
        let named = |record: &str| {
            let shares = shares(&pod(record, &[]), &inventory(4));
            shares.map(|shares| tautline_gpu_placement::device_annotation::format(&shares))
        };
        assert_eq!(named("2:250@4,3").unwrap(), "GPU-2:250@4,GPU-3:1000");
        assert_eq!(named("2:250,GPU-2:250").unwrap(), "GPU-2:500");
        let error = named("2:250@4,GPU-2:250@0").unwrap_err();
        assert_eq!(error.code, "BadRecord");
        let pod = pod("GPU-2:500@4", &[("a", Kind::Main, 400, 0)]);
        assert_eq!(given(&pod, "a").unwrap(), "2:400");
    }

    /// As a record that another version wrote, or that names two cards for one.
    #[test]
    fn a_share_is_not_put_together_of_two_cards() {
        let two = [("a", Kind::Main, 600, 0), ("b", Kind::Main, 600, 0)];
        let pod = pod("0:1000,1:200", &two);
        assert_eq!(given(&pod, "a").unwrap(), "0:600");
        let error = given(&pod, "b").unwrap_err();
        assert!(error.contains("has 400 and 200 left"), "{error}");
    }

    #[test]
    fn several_cards_are_taken_largest_first() {
        let pod = pod("3:1000,1:500,0:1000", &[("all", Kind::Main, 2500, 0)]);
        assert_eq!(given(&pod, "all").unwrap(), "0:1000,1:500,3:1000");
    }

    #[test]
    fn init_containers_have_what_sidecars_before_them_leave() {
        let pod = pod(
            "0:750",
            &[
                ("first", Kind::Init, 750, 0),
                ("side", Kind::Sidecar, 250, 0),
                ("second", Kind::Init, 500, 0),
                ("greedy", Kind::Init, 750, 0),
                ("app", Kind::Main, 500, 0),
            ],
        );
        assert_eq!(given(&pod, "first").unwrap(), "0:750");
        assert_eq!(given(&pod, "side").unwrap(), "0:250");
        assert_eq!(given(&pod, "second").unwrap(), "0:500");
        assert!(given(&pod, "greedy").is_err());
        assert_eq!(given(&pod, "app").unwrap(), "0:500");
    }

    #[test]
    fn memory_counts_in_thousandths_of_the_card() {
        let one = pod("0:250", &[("app", Kind::Main, 100, 20)]);
        assert_eq!(given(&one, "app").unwrap(), "0:250");
        let large = pod("0:1000", &[("app", Kind::Main, 0, 81)]);
        assert!(given(&large, "app").unwrap_err().contains("less memory"));
        // 1 GiB is 12.5 thousandths: 38 for three at once, 39 for one by one.
        let three = ["a", "b", "c"].map(|name| (name, Kind::Main, 0, 1));
        let three = pod("0:38", &three);
        assert_eq!(given(&three, "a").unwrap(), "0:13");
        assert_eq!(given(&three, "c").unwrap(), "0:12");
    }

    #[test]
    fn records_that_cannot_hold_are_refused() {
        let app = [("app", Kind::Main, 250, 0)];
        for (record, part) in [
            ("GPU-9:250", "GPU-9, which the node does not have"),
            (
                "0:600,GPU-0:600",
                "more than 1000 thousandths of card GPU-0",
            ),
            ("0:x", "is no card"),
            ("0:100", "has 100 left"),
        ] {
            let error = given(&pod(record, &app), "app").unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let mut faulty = inventory(1);
        faulty.cards[0].fault = Some("Xid79".to_owned());
        let error = assign(&pod("0:250", &app), "app", &faulty).unwrap_err();
        assert_eq!(error.to_string(), "card GPU-0 is unhealthy: Xid79");
        assert_eq!(error.code, "FaultyCard");
    }

    fn kinds() -> impl Strategy<Value = Kind> {
        prop_oneof![Just(Kind::Init), Just(Kind::Sidecar), Just(Kind::Main)]
    }

    proptest! {
        #[test]
        fn containers_get_never_more_than_the_record(
            parts in prop::collection::vec((0u32..6, 1u16..=1000), 1..4),
            mut asked in prop::collection::vec((kinds(), 0i64..2200, 0i64..40), 1..6),
        ) {
            // Init containers and sidecars come first.
            asked.sort_by_key(|(kind, ..)| *kind == Kind::Main);
            let text: Vec<String> = parts.iter().map(|(card, m)| format!("{card}:{m}")).collect();
            let names: Vec<String> = (0..asked.len()).map(|i| i.to_string()).collect();
            let listed: Vec<_> = asked.iter().zip(&names)
                .map(|((k, m, g), name)| (name.as_str(), *k, *m, *g)).collect();
            let pod = pod(&text.join(","), &listed);
            let inventory = inventory(4);
            let whole: BTreeMap<String, u32> = shares(&pod, &inventory).unwrap_or_default()
                .into_iter().map(|share| (share.card.into(), u32::from(share.milli))).collect();
            let of = |name: &str| assign(&pod, name, &inventory).unwrap_or_default();
            // All that live at once: the containers with all sidecars, or an init container with
            // the sidecars before it.
            let living = |at: usize| {
                let meant = &pod.containers[at];
                pod.containers.iter().enumerate().filter(move |(i, c)| {
                    *i == at || (*i < at || meant.kind != Kind::Init) && match c.kind {
                        Kind::Init => false,
                        Kind::Sidecar => true,
                        Kind::Main => meant.kind != Kind::Init,
                    }
                })
            };
            for at in 0..pod.containers.len() {
                let mut used: BTreeMap<String, u32> = BTreeMap::new();
                for (_, container) in living(at) {
                    for (card, milli) in of(&container.name) {
                        prop_assert!(milli > 0);
                        *used.entry(card.uuid).or_default() += u32::from(milli);
                    }
                }
                for (card, milli) in used {
                    prop_assert!(milli <= *whole.get(&card).unwrap_or(&0), "{card}: {milli} of {whole:?}");
                }
                if pod.containers[at].asks.is_empty() {
                    prop_assert!(of(&pod.containers[at].name).is_empty());
                }
            }
        }
    }
}
