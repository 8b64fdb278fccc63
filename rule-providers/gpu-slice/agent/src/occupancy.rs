//! Checks whether a pod's parts of cards are free of other pods' running containers. The functions
//! are pure.

use std::{collections::HashMap, sync::Arc};

use tautline_gpu_placement::{device_annotation::CardShare, mig::MigPlace, shape::CARD_MILLI};

use crate::assignment::Denial;

/// A pod that holds cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Occupant {
    pub uid: Arc<str>,
    /// The pod's name as `NAMESPACE/NAME`.
    pub name: String,
    /// All parts that the record gives, with cards by UUID: one running container holds them for the
    /// whole pod.
    pub held: Vec<CardShare>,
}

/// Checks that a pod's parts fit on the cards together with the parts that other pods hold. Several
/// occupants may be the same pod. `place` returns the slices of a MIG instance.
pub(crate) fn fits(
    uid: &str,
    wanted: &[CardShare],
    occupants: &[Occupant],
    place: impl Fn(&CardShare) -> Option<MigPlace>,
) -> Result<(), Denial> {
    let mut others: HashMap<&str, &Occupant> = HashMap::new();
    for occupant in occupants.iter().filter(|occupant| *occupant.uid != *uid) {
        others.insert(&occupant.uid, occupant);
    }
    for part in wanted {
        let on_card = || {
            others.values().flat_map(|occupant| {
                let held = occupant.held.iter().filter(|held| held.card == part.card);
                held.map(|held| (occupant.name.as_str(), held))
            })
        };
        let mask = |held: &CardShare| place(held).map_or(0, MigPlace::mask);
        let mut meeting = on_card().filter(|(_, held)| mask(held) & mask(part) != 0);
        if let Some((name, _)) = meeting.next() {
            return Err(occupied(format!(
                "a container of {name} still runs on memory slices of card {} that it needs",
                part.card
            )));
        }
        let mut on_card: Vec<(&str, u32)> = on_card()
            .map(|(name, held)| (name, u32::from(held.milli)))
            .collect();
        let used: u32 = on_card.iter().map(|(_, milli)| milli).sum();
        if used + u32::from(part.milli) > u32::from(CARD_MILLI) {
            on_card.sort_unstable();
            on_card.dedup_by_key(|(name, _)| *name);
            let names: Vec<&str> = on_card.iter().map(|(name, _)| *name).collect();
            return Err(occupied(format!(
                "card {} has {} of 1000 thousandths free, as containers of {} still run",
                part.card,
                u32::from(CARD_MILLI).saturating_sub(used),
                names.join(", ")
            )));
        }
    }
    Ok(())
}

fn occupied(text: String) -> Denial {
    Denial::new("OccupiedCard", text, "the kubelet tries again")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn occupant(uid: &str, card: u8, milli: u16) -> Occupant {
        Occupant {
            uid: uid.into(),
            name: format!("shop/{uid}"),
            held: vec![share(card, milli, None)],
        }
    }

    fn share(card: u8, milli: u16, start: Option<u8>) -> CardShare {
        CardShare {
            card: format!("GPU-{card}").into(),
            milli,
            start,
        }
    }

    fn no_place(_: &CardShare) -> Option<MigPlace> {
        None
    }

    #[test]
    fn a_pod_counts_once_and_not_against_itself() {
        let occupants = [occupant("a", 0, 600), occupant("a", 0, 600)];
        let fits = |uid: &str, milli| fits(uid, &[share(0, milli, None)], &occupants, no_place);
        assert_eq!(fits("b", 400), Ok(()));
        assert_eq!(fits("a", 600), Ok(()));
        let error = fits("b", 401).unwrap_err().to_string();
        assert_eq!(
            error,
            "card GPU-0 has 400 of 1000 thousandths free, as containers of shop/a still run"
        );
    }

    #[test]
    fn memory_slices_are_free_once_their_container_ends() {
        let mut old = occupant("a", 0, 250);
        old.held = vec![share(0, 250, Some(4))];
        let place = |held: &CardShare| {
            Some(MigPlace {
                start: held.start?,
                size: u8::try_from(held.milli / 125).unwrap(),
                compute: 1,
            })
        };
        let fits = |uid: &str, milli, start| {
            fits(
                uid,
                &[share(0, milli, Some(start))],
                std::slice::from_ref(&old),
                place,
            )
        };
        assert_eq!(fits("b", 500, 0), Ok(()));
        assert_eq!(fits("b", 250, 6), Ok(()));
        assert_eq!(fits("a", 250, 4), Ok(()));
        let error = fits("b", 125, 5).unwrap_err().to_string();
        assert_eq!(
            error,
            "a container of shop/a still runs on memory slices of card GPU-0 that it needs"
        );
    }

    proptest! {
        #[test]
        fn no_card_is_ever_given_twice(
            starts in prop::collection::vec((0usize..12, 0u8..3, 1u16..=1000, any::<bool>()), 0..40),
        ) {
            let mut running: Vec<Occupant> = Vec::new();
            for (pod, card, milli, ends) in starts {
                let new = occupant(&format!("p{pod}"), card, milli);
                let free = fits(&new.uid, &new.held, &running, no_place).is_ok();
                if ends || free {
                    running.retain(|occupant| occupant.uid != new.uid);
                }
                if !ends && free {
                    running.push(new);
                }
                for card in 0..3 {
                    let card = format!("GPU-{card}");
                    let all = running.iter().flat_map(|h| &h.held);
                    let used: u32 =
                        all.filter(|h| *h.card == card).map(|h| u32::from(h.milli)).sum();
                    prop_assert!(used <= 1000);
                }
            }
        }
    }
}
