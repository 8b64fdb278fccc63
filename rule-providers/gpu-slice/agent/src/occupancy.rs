//! Which pods hold cards by running containers, as the container runtime tells. Pure.

use std::{collections::HashMap, sync::Arc};

use tautline_gpu_placement::{device_annotation::CardShare, mig::MigPlace, shape::CARD};

/// The part of a card, by UUID, that a pod's record gives.
pub(crate) type Held = CardShare;

/// A pod that holds cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Occupant {
    pub uid: Arc<str>,
    /// `NAMESPACE/NAME`.
    pub name: String,
    /// All that the record gives: one running container holds it for the others.
    pub held: Vec<Held>,
}

/// Holders by id of the container that holds, with the id of its sandbox.
#[derive(Debug, Default)]
pub(crate) struct Occupancy(HashMap<String, (String, Occupant)>);

impl Occupancy {
    pub fn hold(&mut self, container_id: &str, sandbox_id: &str, occupant: Occupant) {
        let held = (sandbox_id.to_owned(), occupant);
        self.0.insert(container_id.to_owned(), held);
    }

    pub fn release(&mut self, container_id: &str) {
        self.0.remove(container_id);
    }

    /// A pod may have another sandbox meanwhile.
    pub fn release_sandbox(&mut self, id: &str) {
        self.0.retain(|_, (sandbox, _)| sandbox != id);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// In no order; a pod once for each container.
    pub fn occupants(&self) -> impl Iterator<Item = &Occupant> {
        self.0.values().map(|(_, occupant)| occupant)
    }
}

/// A card that others hold so much of that a pod's part does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Occupied {
    #[error(
        "card {card} has {free} of 1000 thousandths free, as containers of {occupants} still run"
    )]
    Milli {
        card: Box<str>,
        free: u16,
        occupants: String,
    },
    #[error("a container of {occupant} still runs on memory slices of card {card} that it needs")]
    Slices { card: Box<str>, occupant: String },
}

/// Whether a pod's parts fit beside what others hold. Several occupants may be of one pod.
/// `place`: the slices of a MIG instance.
pub(crate) fn fits(
    uid: &str,
    wanted: &[Held],
    occupants: &[Occupant],
    place: impl Fn(&Held) -> Option<MigPlace>,
) -> Result<(), Occupied> {
    let mut others: HashMap<&str, &Occupant> = HashMap::new();
    for occupant in occupants.iter().filter(|occupant| *occupant.uid != *uid) {
        others.insert(&occupant.uid, occupant);
    }
    for part in wanted {
        let on_card = || {
            others.values().filter_map(|occupant| {
                let held = occupant.held.iter().find(|held| held.card == part.card)?;
                Some((occupant.name.as_str(), held))
            })
        };
        let mask = |held: &Held| place(held).map_or(0, MigPlace::mask);
        let mut meeting = on_card().filter(|(_, held)| mask(held) & mask(part) != 0);
        if let Some((name, _)) = meeting.next() {
            return Err(Occupied::Slices {
                card: part.card.clone(),
                occupant: name.to_owned(),
            });
        }
        let mut on_card: Vec<(&str, u32)> = on_card()
            .map(|(name, held)| (name, u32::from(held.milli)))
            .collect();
        let used: u32 = on_card.iter().map(|(_, milli)| milli).sum();
        if used + u32::from(part.milli) > u32::from(CARD) {
            on_card.sort_unstable();
            let names: Vec<&str> = on_card.iter().map(|(name, _)| *name).collect();
            return Err(Occupied::Milli {
                card: part.card.clone(),
                free: CARD.saturating_sub(u16::try_from(used).unwrap_or(CARD)),
                occupants: names.join(", "),
            });
        }
    }
    Ok(())
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

    fn share(card: u8, milli: u16, start: Option<u8>) -> Held {
        Held {
            card: format!("GPU-{card}").into(),
            milli,
            start,
        }
    }

    fn no_place(_: &Held) -> Option<MigPlace> {
        None
    }

    #[test]
    fn a_pod_counts_once_and_until_its_last_container_ends() {
        let mut occupancy = Occupancy::default();
        occupancy.hold("c1", "s1", occupant("a", 0, 600));
        occupancy.hold("c2", "s2", occupant("a", 0, 600));
        let fits = |occupancy: &Occupancy, uid: &str, milli| {
            let occupants: Vec<Occupant> = occupancy.occupants().cloned().collect();
            fits(uid, &[share(0, milli, None)], &occupants, no_place)
        };
        assert_eq!(fits(&occupancy, "b", 400), Ok(()));
        assert_eq!(fits(&occupancy, "a", 600), Ok(()));
        let error = fits(&occupancy, "b", 401).unwrap_err().to_string();
        assert_eq!(
            error,
            "card GPU-0 has 400 of 1000 thousandths free, as containers of shop/a still run"
        );
        occupancy.release("c1");
        occupancy.release_sandbox("s1");
        assert!(fits(&occupancy, "b", 1000).is_err());
        occupancy.release_sandbox("s2");
        assert_eq!(fits(&occupancy, "b", 1000), Ok(()));
    }

    #[test]
    fn memory_slices_are_free_once_their_container_ends() {
        let mut old = occupant("a", 0, 250);
        old.held = vec![share(0, 250, Some(4))];
        let place = |held: &Held| {
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
            let mut occupancy = Occupancy::default();
            for (pod, card, milli, ends) in starts {
                let (uid, id) = (format!("p{pod}"), format!("c{pod}"));
                let new = occupant(&uid, card, milli);
                let occupants: Vec<Occupant> = occupancy.occupants().cloned().collect();
                if ends {
                    occupancy.release(&id);
                } else if fits(&uid, &new.held, &occupants, no_place).is_ok() {
                    occupancy.hold(&id, &uid, new);
                }
                for card in 0..3 {
                    let card = format!("GPU-{card}");
                    let all = occupancy.occupants().flat_map(|h| &h.held);
                    let used: u32 =
                        all.filter(|h| *h.card == card).map(|h| u32::from(h.milli)).sum();
                    prop_assert!(used <= 1000);
                }
            }
        }
    }
}
