use tautline_nvml::{Card, Link};

/// The other end of an active NVLink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// A card with this PCI address.
    Card(String),
    /// An NVSwitch.
    Switch,
}

/// Returns the connections from each card to all others, by the other ends of the cards' active
/// NVLinks. Cards with NVLinks to a switch reach each other.
pub fn links(cards: &[(&Card, &[Remote])]) -> Vec<Vec<Link>> {
    let count = |ends: &[Remote], remote: &Remote| {
        let ends = ends.iter().filter(|end| *end == remote);
        u32::try_from(ends.count()).unwrap_or(u32::MAX)
    };
    let link = |ends: &[Remote], (to, others): &(&Card, &[Remote])| {
        let direct = count(ends, &Remote::Card(to.pci.clone()));
        let switched = count(ends, &Remote::Switch).min(count(others, &Remote::Switch));
        Link {
            to: to.uuid.clone(),
            nvlinks: direct.max(switched),
        }
    };
    let from = |(from, ends): &(&Card, &[Remote])| {
        let others = cards.iter().filter(|(to, _)| to.uuid != from.uuid);
        others.map(|to| link(ends, to)).collect()
    };
    cards.iter().map(from).collect()
}

/// Converts a bus ID such as `00000000:3B:00.0` or `0000:3B:00.0` to the name that Linux uses,
/// `0000:3b:00.0`.
pub fn pci_address(bus_id: &str) -> String {
    let lower = bus_id.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[4..])
        }
        _ => lower,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn card(uuid: &str, pci: &str) -> Card {
        Card {
            uuid: uuid.into(),
            pci: pci.into(),
            ..Card::default()
        }
    }

    #[test]
    fn cards_on_a_switch_reach_each_other() {
        let all = vec![Remote::Switch; 18];
        let fewer = vec![Remote::Switch; 17];
        let cards: [(&Card, &[Remote]); 3] = [
            (&card("a", "0"), &all),
            (&card("b", "1"), &fewer),
            (&card("c", "2"), &[]),
        ];
        let links = links(&cards);
        let link = |to: &str, nvlinks| Link {
            to: to.into(),
            nvlinks,
        };
        assert_eq!(links[0], [link("b", 17), link("c", 0)]);
        assert_eq!(links[2][0].nvlinks, 0);
    }

    #[test]
    fn direct_links_count_by_card() {
        let ends = [
            Remote::Card("1".into()),
            Remote::Card("1".into()),
            Remote::Card("2".into()),
        ];
        let cards: [(&Card, &[Remote]); 3] = [
            (&card("a", "0"), &ends),
            (&card("b", "1"), &[]),
            (&card("c", "2"), &[]),
        ];
        let links = links(&cards);
        assert_eq!((links[0][0].nvlinks, links[0][1].nvlinks), (2, 1));
    }

    #[test]
    fn pci_addresses_are_those_of_linux() {
        assert_eq!(pci_address("00000000:3B:00.0"), "0000:3b:00.0");
        assert_eq!(pci_address("0000:3B:00.0"), "0000:3b:00.0");
        assert_eq!(pci_address("00010000:3B:00.0"), "00010000:3b:00.0");
        assert_eq!(pci_address(""), "");
    }

    proptest! {
        #[test]
        fn each_card_has_a_way_to_all_others(
            ends in prop::collection::vec(prop::collection::vec(0_usize..6, 0..18), 0..6),
        ) {
            let names: Vec<String> = (0..ends.len()).map(|i| i.to_string()).collect();
            let remotes: Vec<Vec<Remote>> = ends
                .iter()
                .map(|ends| ends.iter().map(|end| match end {
                    0 => Remote::Switch,
                    other => Remote::Card(other.to_string()),
                }).collect())
                .collect();
            let all: Vec<Card> = names.iter().map(|name| card(name, name)).collect();
            let cards: Vec<_> = all.iter().zip(remotes.iter().map(|ends| &**ends)).collect();
            let links = links(&cards);
            for (from, ways) in links.iter().enumerate() {
                let mut expected: Vec<&String> = names.iter().collect();
                expected.remove(from);
                prop_assert_eq!(ways.iter().map(|way| &way.to).collect::<Vec<_>>(), expected);
                for way in ways {
                    prop_assert!(usize::try_from(way.nvlinks).unwrap() <= remotes[from].len());
                }
            }
        }
    }
}
