//! Converts a reading of the cards to the node's annotation and labels.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tautline_gpu_placement::{
    mig::{MigLayout, MigPlace, MigProfile},
    node_inventory::{InventoryCard, MIG_LIMITS, NodeInventory},
    shape::CARD_MILLI,
};
use tautline_nvml::{Card, MigInstance, MigSlot, Reading};

/// The longest value of a label, in characters.
const MAX_LABEL_VALUE_CHARS: usize = 63;
/// The fault of a card with MIG on if the node's limits are not `mig`: the card's memory and
/// processors belong to MIG instances.
const MIG_ON: &str = "MigOn";

/// Returns the annotation's value, without the figures that change with use. `own` lists the MIG
/// instances that the agent has made.
pub(crate) fn inventory(reading: &Reading, limits: &str, own: &BTreeSet<MigSlot>) -> NodeInventory {
    let is_mig = limits == MIG_LIMITS;
    let card = |card: &Card| InventoryCard {
        uuid: card.uuid.clone(),
        index: card.index,
        product: product(&card.product),
        memory_bytes: card.memory_bytes,
        fault: card.fault.clone().or_else(|| {
            let is_on = card.mig.is_some() && !is_mig;
            is_on.then(|| MIG_ON.to_owned())
        }),
        nvlink: card.nvlink,
        numa: card.numa.and_then(|node| node.try_into().ok()),
        mig: card
            .mig
            .as_ref()
            .filter(|_| is_mig)
            .map(|instances| layout(card, instances, own)),
    };
    let mut cards: Vec<InventoryCard> = reading.cards.iter().map(card).collect();
    cards.sort_by_key(|card| card.index);
    NodeInventory {
        cards,
        limits: limits.to_owned(),
    }
}

/// Returns the MIG instances that a card can have, and the places that the administrator's
/// instances occupy.
fn layout(card: &Card, instances: &[MigInstance], own: &BTreeSet<MigSlot>) -> MigLayout {
    let profiles = &card.mig_profiles;
    let ends = profiles
        .iter()
        .flat_map(|p| p.starts.iter().map(|start| start + p.size));
    let slices = ends.max().unwrap_or(1);
    let small = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
    let profile = |p: &tautline_nvml::MigProfile| MigProfile {
        name: p.name.clone(),
        milli: u16::try_from(p.size * u32::from(CARD_MILLI) / slices).unwrap_or(CARD_MILLI),
        size: small(p.size),
        compute: small(p.compute),
        starts: p.starts.iter().copied().map(small).collect(),
    };
    let mut taken: Vec<&MigInstance> = instances
        .iter()
        .filter(|one| !own.contains(&one.slot(&card.uuid)))
        .collect();
    // A GPU instance may have several compute instances.
    taken.dedup_by_key(|one| one.gpu_instance);
    let place = |one: &MigInstance| MigPlace {
        start: small(one.start),
        size: small(one.size),
        compute: small(one.compute),
    };
    MigLayout {
        profiles: profiles.iter().map(profile).collect(),
        taken: taken.into_iter().map(place).collect(),
    }
}

/// Returns the labels that GPU feature discovery sets on a node without MIG; empty without cards.
pub(crate) fn labels(reading: &Reading) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let Some(card) = most_common(&reading.cards) else {
        return labels;
    };
    let mut add = |name: &str, value: String| {
        labels.insert(format!("nvidia.com/{name}"), value);
    };
    add("gpu.present", "true".into());
    add("gpu.count", reading.cards.len().to_string());
    add("gpu.product", product(&card.product));
    // NVML reports no memory for cards that share the node's memory.
    if card.memory_bytes > 0 {
        add("gpu.memory", (card.memory_bytes >> 20).to_string());
    }
    if card.compute.0 > 0 {
        let family = if card.family.is_empty() {
            "undefined"
        } else {
            &card.family
        };
        add("gpu.family", family.to_owned());
        add("gpu.compute.major", card.compute.0.to_string());
        add("gpu.compute.minor", card.compute.1.to_string());
    }
    for (name, version) in [("driver", &reading.driver), ("runtime", &reading.cuda)] {
        let version = value(version);
        if version.is_empty() {
            continue;
        }
        let mut numbers = version.split('.').map(str::to_owned);
        for part in ["major", "minor", "revision"] {
            // CUDA's version has no revision.
            if let Some(number) = numbers.next().or((name == "driver").then(String::new)) {
                add(&format!("cuda.{name}-version.{part}"), number);
            }
        }
        add(&format!("cuda.{name}-version.full"), version);
    }
    labels
}

/// Converts a product's name to the value of a label, such as `NVIDIA H100 80GB HBM3` to
/// `NVIDIA-H100-80GB-HBM3`.
fn product(name: &str) -> String {
    value(&name.split_whitespace().collect::<Vec<_>>().join("-"))
}

/// Converts a text to a valid value of a label.
fn value(text: &str) -> String {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let value: String = text
        .chars()
        .filter(allowed)
        .take(MAX_LABEL_VALUE_CHARS)
        .collect();
    value
        .trim_matches(|c: char| !c.is_ascii_alphanumeric())
        .to_owned()
}

/// Returns the first card of the most common product.
fn most_common(cards: &[Card]) -> Option<&Card> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for card in cards {
        *counts.entry(&card.product).or_default() += 1;
    }
    cards
        .iter()
        .max_by_key(|card| (counts[card.product.as_str()], std::cmp::Reverse(card.index)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn card(index: u32, product: &str) -> Card {
        Card {
            uuid: format!("GPU-{index}"),
            index,
            product: product.into(),
            family: "hopper".into(),
            compute: (9, 0),
            memory_bytes: 81559 << 20,
            ..Card::default()
        }
    }

    fn reading(cards: Vec<Card>) -> Reading {
        Reading {
            driver: "580.95.05".into(),
            cuda: "13.0".into(),
            cards,
            ..Reading::default()
        }
    }

    #[test]
    fn labels_are_those_of_gpu_feature_discovery() {
        let cards = vec![
            card(0, "NVIDIA A2"),
            card(1, "NVIDIA H100"),
            card(2, "NVIDIA H100"),
        ];
        let labels = labels(&reading(cards));
        let expected = [
            ("cuda.driver-version.full", "580.95.05"),
            ("cuda.driver-version.major", "580"),
            ("cuda.driver-version.minor", "95"),
            ("cuda.driver-version.revision", "05"),
            ("cuda.runtime-version.full", "13.0"),
            ("cuda.runtime-version.major", "13"),
            ("cuda.runtime-version.minor", "0"),
            ("gpu.compute.major", "9"),
            ("gpu.compute.minor", "0"),
            ("gpu.count", "3"),
            ("gpu.family", "hopper"),
            ("gpu.memory", "81559"),
            ("gpu.present", "true"),
            ("gpu.product", "NVIDIA-H100"),
        ];
        let expected = expected.map(|(name, value)| (format!("nvidia.com/{name}"), value.into()));
        assert_eq!(labels, BTreeMap::from(expected));
    }

    #[test]
    fn memory_that_is_not_known_has_no_label() {
        let unified = Card {
            memory_bytes: 0,
            ..card(0, "NVIDIA GB10")
        };
        let labels = labels(&reading(vec![unified]));
        assert!(labels.contains_key("nvidia.com/gpu.product"));
        assert!(!labels.contains_key("nvidia.com/gpu.memory"), "{labels:?}");
    }

    #[test]
    fn a_node_without_cards_has_no_labels() {
        assert_eq!(labels(&reading(vec![])), BTreeMap::new());
    }

    #[test]
    fn a_driver_without_revision_has_an_empty_one() {
        let mut reading = reading(vec![card(0, "NVIDIA A2")]);
        (reading.driver, reading.cuda) = ("550.54".into(), String::new());
        let labels = labels(&reading);
        assert_eq!(labels["nvidia.com/cuda.driver-version.revision"], "");
        assert!(!labels.contains_key("nvidia.com/cuda.runtime-version.full"));
    }

    #[test]
    fn inventory_changes_with_faults_and_not_with_use() {
        let mut cards = vec![card(1, "NVIDIA H100 80GB HBM3"), card(0, "Tesla T4")];
        let first = inventory(&reading(cards.clone()), "mps", &BTreeSet::new());
        assert_eq!(first.limits, "mps");
        assert_eq!(first.cards[0].product, "Tesla-T4");
        assert_eq!(first.cards[1].product, "NVIDIA-H100-80GB-HBM3");
        cards[0].memory_used_bytes = 7;
        cards[0].busy_milli = 7;
        assert_eq!(
            inventory(&reading(cards.clone()), "mps", &BTreeSet::new()),
            first
        );
        cards[0].fault = Some("Xid79".into());
        cards[1].mig = Some(vec![]);
        let second = inventory(&reading(cards), "mps", &BTreeSet::new());
        let faults: Vec<_> = second
            .cards
            .iter()
            .map(|card| card.fault.as_deref())
            .collect();
        assert_eq!(faults, [Some("MigOn"), Some("Xid79")]);
    }

    #[test]
    fn cards_with_mig_have_a_layout_beside_the_administrators_instances() {
        let profile = |name: &str, size, starts: &[u32]| tautline_nvml::MigProfile {
            name: name.into(),
            size,
            compute: size,
            starts: starts.to_vec(),
        };
        let instance = |start, gpu_instance| MigInstance {
            profile: "2g.12gb".into(),
            start,
            size: 2,
            compute: 2,
            gpu_instance,
            ..MigInstance::default()
        };
        let mut cards = vec![card(0, "NVIDIA A30"), card(1, "NVIDIA A30")];
        cards[0].mig = Some(vec![instance(0, 1), instance(2, 2), instance(2, 2)]);
        cards[0].mig_profiles = vec![
            profile("1g.6gb", 1, &[0, 1, 2, 3]),
            profile("2g.12gb", 2, &[0, 2]),
            profile("4g.24gb", 4, &[0]),
        ];
        let own = MigSlot {
            card: "GPU-0".into(),
            profile: "2g.12gb".into(),
            start: 0,
        };
        let listed = inventory(&reading(cards), "mig", &BTreeSet::from([own]));
        assert!(listed.is_mig() && listed.cards.iter().all(|card| card.fault.is_none()));
        assert_eq!(listed.cards[1].mig, None);
        let mig = listed.cards[0].mig.as_ref().unwrap();
        assert_eq!(mig.sizes(), [250, 500, 1000]);
        let place = MigPlace {
            start: 2,
            size: 2,
            compute: 2,
        };
        assert_eq!(mig.taken, [place]);
    }

    proptest! {
        #[test]
        fn values_are_valid_labels(text in ".{0,100}") {
            let value = value(&text);
            prop_assert!(value.len() <= MAX_LABEL_VALUE_CHARS);
            prop_assert!(!value.starts_with(['-', '_', '.']) && !value.ends_with(['-', '_', '.']));
        }
    }
}
