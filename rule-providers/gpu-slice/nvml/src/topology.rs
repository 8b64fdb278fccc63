use tautline_nvml::Link;

/// The other end of an active NVLink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// A card with this PCI address.
    Card(String),
    /// An NVSwitch.
    Switch,
}

/// The facts about a card that determine its connections.
#[derive(Clone, Debug)]
pub struct Linked<'a> {
    pub uuid: &'a str,
    pub pci: &'a str,
    /// The other ends of all active NVLinks.
    pub remotes: &'a [Remote],
}

/// Returns the connections from each card to all others. Cards with active NVLinks to a switch
/// reach each other. `pcie` returns the topology level of two cards by their positions in `cards`.
pub fn links(cards: &[Linked<'_>], pcie: impl Fn(usize, usize) -> u32) -> Vec<Vec<Link>> {
    let switched: Vec<u32> = cards
        .iter()
        .map(|card| count(card, &Remote::Switch))
        .collect();
    (0..cards.len())
        .map(|from| {
            (0..cards.len())
                .filter(|to| *to != from)
                .map(|to| {
                    let direct = count(&cards[from], &Remote::Card(cards[to].pci.to_owned()));
                    Link {
                        to: cards[to].uuid.to_owned(),
                        nvlinks: direct.max(switched[from].min(switched[to])),
                        pcie: pcie(from, to),
                    }
                })
                .collect()
        })
        .collect()
}

fn count(card: &Linked<'_>, remote: &Remote) -> u32 {
    card.remotes
        .iter()
        .filter(|end| *end == remote)
        .count()
        .try_into()
        .unwrap_or(u32::MAX)
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

    fn linked<'a>(uuid: &'a str, pci: &'a str, remotes: &'a [Remote]) -> Linked<'a> {
        Linked { uuid, pci, remotes }
    }

    #[test]
    fn cards_on_a_switch_reach_each_other() {
        let all = vec![Remote::Switch; 18];
        let fewer = vec![Remote::Switch; 17];
        let cards = [
            linked("a", "0", &all),
            linked("b", "1", &fewer),
            linked("c", "2", &[]),
        ];
        let links = links(&cards, |_, _| 50);
        assert_eq!(
            links[0][0],
            Link {
                to: "b".into(),
                nvlinks: 17,
                pcie: 50
            }
        );
        assert_eq!(
            links[0][1],
            Link {
                to: "c".into(),
                nvlinks: 0,
                pcie: 50
            }
        );
        assert_eq!(links[2][0].nvlinks, 0);
    }

    #[test]
    fn direct_links_count_by_card() {
        let ends = [
            Remote::Card("1".into()),
            Remote::Card("1".into()),
            Remote::Card("2".into()),
        ];
        let cards = [
            linked("a", "0", &ends),
            linked("b", "1", &[]),
            linked("c", "2", &[]),
        ];
        let links = links(&cards, |from, to| u32::from(from.abs_diff(to) != 1) * 10);
        assert_eq!((links[0][0].nvlinks, links[0][0].pcie), (2, 0));
        assert_eq!((links[0][1].nvlinks, links[0][1].pcie), (1, 10));
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
                    card => Remote::Card(card.to_string()),
                }).collect())
                .collect();
            let cards: Vec<Linked<'_>> = names
                .iter()
                .zip(&remotes)
                .map(|(name, remotes)| Linked { uuid: name, pci: name, remotes })
                .collect();
            let links = links(&cards, |_, _| 0);
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
