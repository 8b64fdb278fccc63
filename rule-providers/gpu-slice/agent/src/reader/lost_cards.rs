use std::collections::BTreeSet;

use tautline_nvml::{Card, Reading};

/// Returns the new reading with the cards of the last one that it lacks, as faulty. A restarted
/// reader does not find a card that fell off the bus, since NVML does not count it.
pub(super) fn listed(last: Option<&Reading>, mut next: Reading) -> Reading {
    let Some(last) = last else { return next };
    let found: BTreeSet<&str> = next.cards.iter().map(|card| card.uuid.as_str()).collect();
    let lost: Vec<Card> = last
        .cards
        .iter()
        .filter(|card| !found.contains(card.uuid.as_str()))
        .cloned()
        .collect();
    let mut indexes: BTreeSet<u32> = next.cards.iter().map(|card| card.index).collect();
    for mut card in lost {
        // NVML may have given its index to another card.
        while !indexes.insert(card.index) {
            card.index = indexes.last().map_or(0, |last| last.saturating_add(1));
        }
        next.cards.push(faulty(card, "Gone"));
    }
    next.cards.sort_by_key(|card| card.index);
    next
}

/// Returns the cards of the last reading, all of them faulty. A card that already has a fault keeps
/// it.
pub(super) fn all_faulty(last: &Reading, fault: &str) -> Reading {
    let mut reading = Reading {
        processes: Vec::new(),
        ..last.clone()
    };
    for card in reading.cards.iter_mut().filter(|card| card.fault.is_none()) {
        *card = faulty(std::mem::take(card), fault);
    }
    reading
}

fn faulty(card: Card, fault: &str) -> Card {
    Card {
        fault: Some(fault.to_owned()),
        memory_used_bytes: 0,
        busy_milli: 0,
        ..card
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(cards: &[(&str, u32)]) -> Reading {
        let card = |(uuid, index): &(&str, u32)| Card {
            uuid: (*uuid).into(),
            index: *index,
            memory_used_bytes: 7,
            ..Card::default()
        };
        Reading {
            cards: cards.iter().map(card).collect(),
            ..Reading::default()
        }
    }

    fn listing(reading: &Reading) -> Vec<(&str, u32, Option<&str>)> {
        let cards = reading.cards.iter();
        cards
            .map(|card| (card.uuid.as_str(), card.index, card.fault.as_deref()))
            .collect()
    }

    #[test]
    fn a_lost_card_stays_with_an_index_of_its_own() {
        let first = reading(&[("a", 0), ("b", 1), ("c", 2)]);
        let second = listed(Some(&first), reading(&[("a", 0), ("c", 1)]));
        assert_eq!(
            listing(&second),
            [("a", 0, None), ("c", 1, None), ("b", 2, Some("Gone"))]
        );
        let third = listed(Some(&second), reading(&[("a", 0), ("b", 1), ("c", 2)]));
        assert_eq!(
            listing(&third),
            [("a", 0, None), ("b", 1, None), ("c", 2, None)]
        );
    }

    #[test]
    fn all_cards_are_faulty_and_known_faults_stay() {
        let mut first = reading(&[("a", 0), ("b", 1)]);
        first.cards[0].fault = Some("Xid79".into());
        let second = all_faulty(&first, "Unreadable");
        assert_eq!(
            listing(&second),
            [("a", 0, Some("Xid79")), ("b", 1, Some("Unreadable"))]
        );
        assert_eq!(second.cards[1].memory_used_bytes, 0);
    }
}
