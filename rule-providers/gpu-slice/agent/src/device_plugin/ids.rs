//! The device IDs by which the kubelet counts a resource. An ID is only a unit of the count and
//! belongs to no particular card. The functions are pure.

use std::collections::{BTreeSet, HashSet};

use ring::digest::{SHA256, digest};
use tautline_gpu_placement::{
    node_inventory::{InventoryCard, MEMORY_RESOURCE, MILLI_RESOURCE, NodeInventory},
    shape::CARD_MILLI,
};

use crate::kubelet::device_plugin::Device;

const GIB: u64 = 1 << 30;
const TOKEN_BYTES: usize = 16;

/// A countable resource that the agent offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Milli,
    Memory,
}

impl Counted {
    pub const ALL: [Self; 2] = [Self::Milli, Self::Memory];

    pub fn resource(self) -> &'static str {
        match self {
            Self::Milli => MILLI_RESOURCE,
            Self::Memory => MEMORY_RESOURCE,
        }
    }

    /// Returns the file name of the plugin's socket.
    pub fn endpoint(self) -> &'static str {
        match self {
            Self::Milli => "tautline-gpu-milli.sock",
            Self::Memory => "tautline-gpu-memory.sock",
        }
    }

    pub fn other(self) -> Self {
        match self {
            Self::Milli => Self::Memory,
            Self::Memory => Self::Milli,
        }
    }

    fn id(self, number: usize) -> String {
        match self {
            Self::Milli => format!("m{number}"),
            Self::Memory => format!("g{number}"),
        }
    }

    fn of_card(self, card: &InventoryCard) -> usize {
        match self {
            Self::Milli => CARD_MILLI.into(),
            Self::Memory => usize::try_from(card.memory_bytes / GIB).unwrap_or(0),
        }
    }
}

/// All device IDs of a resource, each healthy or not.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    counted: Counted,
    healthy: Vec<bool>,
}

impl Pool {
    pub fn new(counted: Counted) -> Self {
        Self {
            counted,
            healthy: Vec::new(),
        }
    }

    /// Adapts the IDs to the cards: as many IDs are unhealthy as the faulty cards account for. IDs
    /// that no container holds become unhealthy first and healthy last: the kubelet shows an
    /// unhealthy ID on its pod, and does not admit that pod again after a reboot.
    pub fn follow(&mut self, inventory: &NodeInventory, held: &HashSet<String>) {
        let (mut total, mut faulty) = (0, 0);
        for card in &inventory.cards {
            let count = self.counted.of_card(card);
            total += count;
            if card.fault.is_some() {
                faulty += count;
            }
        }
        self.healthy.resize(total, true);
        let broken = self.healthy.iter().filter(|h| !**h).count();
        let is_held = |number: usize| held.contains(&self.counted.id(number));
        let (from, count) = (broken < faulty, broken.abs_diff(faulty));
        let (mut first, mut last): (Vec<usize>, Vec<usize>) = (0..total)
            .rev()
            .filter(|number| self.healthy[*number] == from)
            .partition(|number| is_held(*number) != from);
        first.append(&mut last);
        for number in first.into_iter().take(count) {
            self.healthy[number] = !from;
        }
    }

    pub fn devices(&self) -> Vec<Device> {
        let device = |(number, healthy): (usize, &bool)| Device {
            id: self.counted.id(number),
            health: if *healthy { "Healthy" } else { "Unhealthy" }.to_owned(),
        };
        self.healthy.iter().enumerate().map(device).collect()
    }
}

/// Returns a name for a set of IDs in any order: 32 hexadecimal digits.
pub(crate) fn token<'a>(ids: impl IntoIterator<Item = &'a str>) -> String {
    let sorted: BTreeSet<&str> = ids.into_iter().collect();
    let joined = sorted.into_iter().collect::<Vec<_>>().join(",");
    let hash = digest(&SHA256, joined.as_bytes());
    let bytes = hash.as_ref().iter().take(TOKEN_BYTES);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn inventory(cards: &[(u64, bool)]) -> NodeInventory {
        let card = |(gib, faulty): &(u64, bool)| InventoryCard {
            memory_bytes: gib * GIB + 7,
            fault: faulty.then(|| "Xid79".to_owned()),
            ..InventoryCard::default()
        };
        NodeInventory {
            cards: cards.iter().map(card).collect(),
            ..NodeInventory::default()
        }
    }

    fn broken(pool: &Pool) -> HashSet<String> {
        let devices = pool.devices().into_iter();
        let broken = devices.filter(|d| d.health == "Unhealthy");
        broken.map(|d| d.id).collect()
    }

    #[test]
    fn memory_counts_whole_gib_of_each_card() {
        let mut pool = Pool::new(Counted::Memory);
        pool.follow(&inventory(&[(79, false), (10, true)]), &HashSet::new());
        assert_eq!((pool.devices().len(), broken(&pool).len()), (89, 10));
    }

    #[test]
    fn held_ids_break_last_and_heal_first() {
        let mut pool = Pool::new(Counted::Memory);
        let held: HashSet<String> = ["g3", "g2"].map(str::to_owned).into();
        pool.follow(&inventory(&[(2, true), (2, false)]), &held);
        assert_eq!(broken(&pool), ["g0", "g1"].map(str::to_owned).into());
        pool.follow(&inventory(&[(2, true), (2, true)]), &held);
        assert_eq!(broken(&pool).len(), 4);
        pool.follow(&inventory(&[(2, true), (2, false)]), &held);
        assert_eq!(broken(&pool), ["g0", "g1"].map(str::to_owned).into());
    }

    #[test]
    fn token_is_of_the_set() {
        assert_eq!(token(["m1", "m2"]), token(["m2", "m1"]));
        assert_ne!(token(["m1", "m2"]), token(["m12"]));
        // A container that was admitted before an upgrade of the agent still has its token.
        assert_eq!(token(["m1", "m2"]), "37d4df436128564cd12fb3c849cfab78");
    }

    proptest! {
        #[test]
        fn as_many_break_as_the_faulty_cards_have(
            steps in prop::collection::vec(prop::collection::vec((0..90_u64, any::<bool>()), 0..5), 1..6),
            held in prop::collection::hash_set(0..300_usize, 0..100),
        ) {
            let held = held.into_iter().map(|n| Counted::Memory.id(n)).collect();
            let mut pool = Pool::new(Counted::Memory);
            for cards in steps {
                pool.follow(&inventory(&cards), &held);
                let sum = |faulty: bool| cards.iter().filter(|c| c.1 == faulty).map(|c| c.0).sum::<u64>();
                prop_assert_eq!(broken(&pool).len() as u64, sum(true));
                prop_assert_eq!(pool.devices().len() as u64, sum(true) + sum(false));
                let before = broken(&pool);
                pool.follow(&inventory(&cards), &held);
                prop_assert_eq!(broken(&pool), before);
            }
        }
    }
}
