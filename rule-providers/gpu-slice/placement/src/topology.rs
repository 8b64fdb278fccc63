//! The links between the cards of a node, and the choice of cards that one pod should get together.

use std::{cmp::Reverse, sync::Arc};

/// The links of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CardLinks {
    /// Number of the NVLink domain: cards of a node with the same number reach each other by
    /// NVLink; `None`: no NVLink.
    pub nvlink: Option<u16>,
    /// Number of the card's NUMA node; `None`: not known.
    pub numa: Option<u16>,
}

/// The links of a node's cards, in the order of the cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology(Arc<[CardLinks]>);

#[derive(Clone, Copy)]
enum Level {
    Nvlink,
    Numa,
}

impl Topology {
    /// Creates the topology of a node; `None`: no card has NVLink, so all choices are equally good.
    pub fn new(cards: impl IntoIterator<Item = CardLinks>) -> Option<Self> {
        let cards: Arc<[CardLinks]> = cards.into_iter().collect();
        cards
            .iter()
            .any(|c| c.nvlink.is_some())
            .then_some(Self(cards))
    }

    fn links(&self, card: usize) -> CardLinks {
        self.0.get(card).copied().unwrap_or_default()
    }

    /// Chooses `count` of the `free` cards, or all if there are fewer, in ascending order: from the
    /// domain with the fewest free cards that has enough, else from as few domains as possible.
    /// Among equally good choices, cards of one NUMA node are preferred.
    pub(crate) fn choose(&self, free: &[usize], count: usize) -> Vec<usize> {
        let mut cards = self.choose_in(free, count, &[Level::Nvlink, Level::Numa]);
        cards.sort_unstable();
        cards
    }

    fn choose_in(&self, free: &[usize], count: usize, levels: &[Level]) -> Vec<usize> {
        let [level, next @ ..] = levels else {
            return free.iter().copied().take(count).collect();
        };
        let mut groups = self.groups(free, *level);
        let mut chosen = Vec::with_capacity(count);
        while chosen.len() < count {
            let missing = count - chosen.len();
            let enough = groups.iter().filter(|g| g.len() >= missing).map(|group| {
                let cards = self.choose_in(group, missing, next);
                (group.len(), self.groups(&cards, Level::Numa).len(), cards)
            });
            if let Some((.., cards)) = enough.min() {
                chosen.extend(cards);
                break;
            }
            let by_size = |i: &usize| (groups[*i].len(), Reverse(*i));
            let Some(largest) = (0..groups.len()).max_by_key(by_size) else {
                break;
            };
            chosen.extend(groups.remove(largest));
        }
        chosen
    }

    /// Groups cards by domain or NUMA node, in the order of the groups' first cards. A card without
    /// NVLink is a domain of its own.
    fn groups(&self, cards: &[usize], level: Level) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for card in cards {
            let CardLinks { nvlink, numa } = self.links(*card);
            let same = |other: &usize| match level {
                Level::Nvlink => nvlink.is_some() && nvlink == self.links(*other).nvlink,
                Level::Numa => numa == self.links(*other).numa,
            };
            match groups.iter_mut().find(|g| g.first().is_some_and(same)) {
                Some(group) => group.push(*card),
                None => groups.push(vec![*card]),
            }
        }
        groups
    }

    /// The number of NVLink domains that the cards are in.
    pub fn domains(&self, cards: &[usize]) -> usize {
        self.groups(cards, Level::Nvlink).len()
    }

    /// The number of pairs of these cards that NVLink does not link, and the number of all pairs.
    pub(crate) fn unlinked_pairs(&self, cards: &[usize]) -> (usize, usize) {
        let pairs = |n: usize| n * n.saturating_sub(1) / 2;
        let groups = self.groups(cards, Level::Nvlink);
        let linked: usize = groups.iter().map(|g| pairs(g.len())).sum();
        let all = pairs(cards.len());
        (all - linked, all)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn topology(domains: &[Option<u16>], numa: &[u16]) -> Topology {
        let links = domains.iter().enumerate().map(|(i, nvlink)| CardLinks {
            nvlink: *nvlink,
            numa: numa.get(i).copied(),
        });
        Topology::new(links).unwrap()
    }

    const TWO: [Option<u16>; 8] = [
        Some(0),
        Some(0),
        Some(0),
        Some(0),
        Some(1),
        Some(1),
        Some(1),
        Some(1),
    ];

    #[test]
    fn choose_keeps_domains_whole() {
        let two = topology(&TWO, &[]);
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(two.choose(&all, 4), [0, 1, 2, 3]);
        // Domain 1 has fewer free cards, and still enough.
        assert_eq!(two.choose(&[0, 1, 2, 3, 5, 7], 2), [5, 7]);
        assert_eq!(two.choose(&[0, 1, 2, 3, 5, 7], 1), [5]);
        assert_eq!(two.choose(&[0, 1, 2, 3, 5, 7], 3), [0, 1, 2]);
        // The larger domain first, then the rest of the other.
        assert_eq!(two.choose(&[0, 1, 4, 5, 6], 4), [0, 4, 5, 6]);
        assert_eq!(two.choose(&[0, 1], 3), [0, 1]);
        let none: [CardLinks; 2] = Default::default();
        assert_eq!(Topology::new(none), None);
    }

    #[test]
    fn choose_prefers_cards_without_links_for_single_ones_and_one_numa_node() {
        let mixed = topology(&[Some(0), Some(0), None, None], &[]);
        assert_eq!(mixed.choose(&[0, 1, 2, 3], 1), [2]);
        assert_eq!(mixed.choose(&[0, 1, 2, 3], 2), [0, 1]);
        let numa = topology(&[Some(0); 8], &[0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(numa.choose(&[0, 1, 3, 4, 5], 2), [0, 4]);
        assert_eq!(numa.choose(&[0, 1, 3, 4, 5], 3), [1, 3, 5]);
        // Of two equal domains the one on one NUMA node.
        let equal = topology(&[Some(0), Some(0), Some(1), Some(1)], &[0, 1, 1, 1]);
        assert_eq!(equal.choose(&[0, 1, 2, 3], 2), [2, 3]);
    }

    proptest! {
        #[test]
        fn choose_takes_free_cards_of_the_fewest_domains(
            domains in prop::collection::vec(prop::option::of(0..3_u16), 1..9),
            numa in prop::collection::vec(0..2_u16, 9),
            busy in prop::collection::vec(any::<bool>(), 9),
            count in 0..9_usize,
        ) {
            let links = domains.iter().zip(&numa).map(|(nvlink, numa)| CardLinks {
                nvlink: *nvlink,
                numa: Some(*numa),
            });
            let Some(topology) = Topology::new(links) else { return Ok(()) };
            let free: Vec<usize> = (0..domains.len()).filter(|i| !busy[*i]).collect();
            let chosen = topology.choose(&free, count);
            prop_assert_eq!(chosen.len(), count.min(free.len()));
            prop_assert!(chosen.iter().all(|c| free.contains(c)));
            prop_assert!(chosen.is_sorted_by(|a, b| a < b));
            // As few domains as the largest ones need.
            let mut sizes: Vec<usize> =
                topology.groups(&free, Level::Nvlink).iter().map(Vec::len).collect();
            sizes.sort_unstable_by_key(|s| Reverse(*s));
            let mut missing = chosen.len();
            let least = sizes.iter().take_while(|size| {
                let needed = missing > 0;
                missing = missing.saturating_sub(**size);
                needed
            });
            let least = least.count();
            prop_assert_eq!(topology.domains(&chosen), least);
            let (unlinked, pairs) = topology.unlinked_pairs(&chosen);
            prop_assert!(unlinked <= pairs);
            prop_assert_eq!(unlinked == 0, least <= 1);
        }
    }
}
