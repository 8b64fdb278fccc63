/// The other end of an active NVLink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// A card with this PCI address.
    Card(String),
    /// An NVSwitch.
    Switch,
}

/// Returns the number of each card's NVLink domain, by the PCI addresses of the cards and the other
/// ends of their active NVLinks; `None`: NVLink leads from the card to no other one. Cards with
/// NVLinks to a switch reach each other.
pub fn domains(cards: &[(&str, &[Remote])]) -> Vec<Option<u16>> {
    let leads = |from: usize, to: usize| {
        let ((_, ends), (pci, others)) = (cards[from], cards[to]);
        ends.contains(&Remote::Card(pci.to_owned()))
            || ends.contains(&Remote::Switch) && others.contains(&Remote::Switch)
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for card in 0..cards.len() {
        let is_linked = |other: &usize| leads(card, *other) || leads(*other, card);
        let (linked, others) = groups
            .into_iter()
            .partition(|group: &Vec<usize>| group.iter().any(is_linked));
        groups = others;
        groups.push(linked.into_iter().flatten().chain([card]).collect());
    }
    groups.retain(|group| group.len() > 1);
    groups.sort_by_key(|group| group.iter().min().copied());
    let domain = |card| groups.iter().position(|group| group.contains(&card));
    (0..cards.len())
        .map(|card| domain(card)?.try_into().ok())
        .collect()
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

    fn to(pci: usize) -> Remote {
        Remote::Card(pci.to_string())
    }

    fn domains_of(ends: &[Vec<Remote>]) -> Vec<Option<u16>> {
        let names: Vec<String> = (0..ends.len()).map(|i| i.to_string()).collect();
        let cards = names.iter().zip(ends);
        domains(&cards.map(|(n, e)| (&**n, &**e)).collect::<Vec<_>>())
    }

    #[test]
    fn cards_on_a_switch_reach_each_other() {
        let (all, fewer) = (vec![Remote::Switch; 18], vec![Remote::Switch; 17]);
        let domains = domains_of(&[all, vec![], fewer]);
        assert_eq!(domains, [Some(0), None, Some(0)]);
    }

    #[test]
    fn connected_cards_are_a_domain() {
        let ends = [
            vec![to(4)],
            vec![],
            vec![to(3)],
            vec![],
            vec![],
            vec![to(3)],
        ];
        let expected = [Some(0), None, Some(1), Some(1), Some(0), Some(1)];
        assert_eq!(domains_of(&ends), expected);
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
        fn linked_cards_share_a_domain(links in prop::collection::vec((0_usize..8, 0_usize..8), 0..12)) {
            let links: Vec<_> = links.into_iter().filter(|(from, to)| from != to).collect();
            let mut ends = vec![Vec::new(); 8];
            for (from, other) in &links {
                ends[*from].push(to(*other));
            }
            let domains = domains_of(&ends);
            for (from, to) in &links {
                prop_assert!(domains[*from].is_some());
                prop_assert_eq!(domains[*from], domains[*to]);
            }
            for (card, domain) in domains.iter().enumerate() {
                let linked = links.iter().any(|(from, to)| *from == card || *to == card);
                prop_assert_eq!(domain.is_some(), linked);
            }
        }
    }
}
