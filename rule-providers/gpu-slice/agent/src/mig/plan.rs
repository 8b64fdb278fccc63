//! Decides which MIG instances are wanted and which are destroyed. The functions are pure.

use std::collections::BTreeSet;

use tautline_gpu_placement::{
    device_annotation::{self, CardShare},
    mig::MigPlace,
    node_inventory::{InventoryCard, NodeInventory},
    shape::CARD_MILLI,
};
use tautline_nvml::{MigInstance, MigSlot, Reading};

use crate::{assignment::find_card, channels::Failure, pods::PodEntry};

/// An instance that the record of a pod on this node names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub instance: MigSlot,
    pub place: MigPlace,
}

impl Wanted {
    /// Returns the instance of a card; `None` if the card cannot have it.
    pub fn new(card: &InventoryCard, milli: u16, start: u8) -> Option<Self> {
        let mig = card.mig.as_ref()?;
        Some(Self {
            instance: MigSlot {
                card: card.uuid.clone(),
                profile: mig.profile_at(milli, start)?.name.clone(),
                start: start.into(),
            },
            place: mig.place_of(milli, start)?,
        })
    }
}

/// Returns the instances that prepared claims and the records of pods name, except pods that have
/// ended.
pub(super) fn wanted<'a>(
    pods: impl Iterator<Item = &'a PodEntry>,
    claimed: impl Iterator<Item = CardShare>,
    inventory: &NodeInventory,
) -> Vec<Wanted> {
    let records = pods
        .filter(|pod| !pod.ended)
        .filter_map(|p| p.record.as_deref());
    let shares = records.filter_map(|text| device_annotation::parse(text, CARD_MILLI).ok());
    let of = |share: CardShare| {
        let card = find_card(inventory, &share.card)?;
        Wanted::new(card, share.milli, share.start?)
    };
    shares.flatten().chain(claimed).filter_map(of).collect()
}

/// Returns the card's instances that must be destroyed before the new one is made.
///
/// # Errors
/// An instance in the way must stay: it is the administrator's or another pod's.
pub(super) fn in_the_way<'a>(
    new: &Wanted,
    instances: &'a [MigInstance],
    own: &BTreeSet<MigSlot>,
    wanted: &[Wanted],
) -> Result<Vec<&'a MigInstance>, Failure> {
    let mut going = Vec::new();
    for instance in instances {
        let of = instance.slot(&new.instance.card);
        let end = instance.start.saturating_add(instance.size);
        let meets = instance.start < u32::from(new.place.start + new.place.size)
            && u32::from(new.place.start) < end;
        if !meets || of == new.instance {
            continue;
        }
        let stays = if !own.contains(&of) {
            "is the administrator's"
        } else if wanted.iter().any(|other| other.instance == of) {
            "is another pod's"
        } else {
            going.push(instance);
            continue;
        };
        return Err(Failure(format!(
            "instance {} at memory slice {} of card {} is in the way, and {stays}",
            of.profile, of.start, of.card
        )));
    }
    Ok(going)
}

/// Returns the agent's instances that no record names.
pub(super) fn unused(
    reading: &Reading,
    own: &BTreeSet<MigSlot>,
    wanted: &[Wanted],
) -> Vec<(MigSlot, MigInstance)> {
    let cards = reading.cards.iter();
    let all = cards.flat_map(|card| {
        let instances = card.mig.iter().flatten();
        instances.map(|one| (one.slot(&card.uuid), one.clone()))
    });
    let is_unused = |(of, _): &(MigSlot, MigInstance)| {
        own.contains(of) && wanted.iter().all(|other| other.instance != *of)
    };
    all.filter(is_unused).collect()
}

/// Returns the agent's instances that the reading does not show.
pub(super) fn gone(reading: &Reading, own: &BTreeSet<MigSlot>) -> Vec<MigSlot> {
    let is_gone = |of: &&MigSlot| {
        // A card that cannot be read may still have it.
        let card = reading.cards.iter().find(|card| card.uuid == of.card);
        card.is_some_and(|card| {
            let mut instances = card.mig.iter().flatten();
            card.fault.is_none() && !instances.any(|one| one.slot(&card.uuid) == **of)
        })
    };
    own.iter().filter(is_gone).cloned().collect()
}

#[cfg(test)]
mod tests {
    use tautline_gpu_placement::mig::{MigLayout, MigProfile};
    use tautline_nvml::Card;

    use super::*;

    fn card() -> InventoryCard {
        let profile = |name: &str, milli, size, starts: &[u8]| MigProfile {
            name: name.into(),
            milli,
            size,
            compute: size,
            starts: starts.to_vec(),
        };
        InventoryCard {
            uuid: "GPU-a".into(),
            index: 3,
            mig: Some(MigLayout {
                profiles: vec![
                    profile("1g.10gb", 125, 1, &[0, 1, 2, 3, 4, 5, 6]),
                    profile("2g.20gb", 250, 2, &[0, 2, 4]),
                    profile("4g.40gb", 500, 4, &[0]),
                ],
                taken: Vec::new(),
            }),
            ..InventoryCard::default()
        }
    }

    fn instance(profile: &str, start: u32, size: u32) -> MigInstance {
        MigInstance {
            profile: profile.into(),
            start,
            size,
            ..MigInstance::default()
        }
    }

    fn own(all: &[(&str, u32)]) -> BTreeSet<MigSlot> {
        let of = |(profile, start): &(&str, u32)| MigSlot {
            card: "GPU-a".into(),
            profile: (*profile).into(),
            start: *start,
        };
        all.iter().map(of).collect()
    }

    fn pod(record: &str, ended: bool) -> PodEntry {
        PodEntry {
            record: Some(record.into()),
            ended,
            ..PodEntry::default()
        }
    }

    #[test]
    fn records_mean_instances() {
        let inventory = NodeInventory {
            cards: vec![card()],
            ..NodeInventory::default()
        };
        let pods = [
            pod("GPU-a:250@4", false),
            pod("3:125@6", false),
            pod("GPU-a:500@0", true),
            pod("GPU-a:250,GPU-b:250@0,GPU-a:250@6", false),
        ];
        let found = wanted(pods.iter(), std::iter::empty(), &inventory);
        let found: BTreeSet<MigSlot> = found.into_iter().map(|one| one.instance).collect();
        assert_eq!(found, own(&[("2g.20gb", 4), ("1g.10gb", 6)]));
    }

    #[test]
    fn only_the_agents_unused_instances_make_room() {
        let new = Wanted::new(&card(), 500, 0).unwrap();
        let there = [
            instance("2g.20gb", 0, 2),
            instance("1g.10gb", 3, 1),
            instance("2g.20gb", 4, 2),
        ];
        let decide = |own: &BTreeSet<MigSlot>, wanted: &[Wanted]| {
            let going = in_the_way(&new, &there, own, wanted).map_err(|why| why.to_string())?;
            Ok::<_, String>(going.into_iter().map(|one| one.start).collect::<Vec<_>>())
        };
        let all = own(&[("2g.20gb", 0), ("1g.10gb", 3)]);
        assert_eq!(decide(&all, std::slice::from_ref(&new)), Ok(vec![0, 3]));
        let other = Wanted::new(&card(), 125, 3).unwrap();
        assert_eq!(
            decide(&all, &[other]).unwrap_err(),
            "instance 1g.10gb at memory slice 3 of card GPU-a is in the way, and is another pod's"
        );
        let error = decide(&own(&[("2g.20gb", 0)]), &[]).unwrap_err();
        assert!(error.ends_with("is the administrator's"), "{error}");
        // It is there already.
        let same = Wanted::new(&card(), 250, 0).unwrap();
        assert_eq!(in_the_way(&same, &there, &own(&[]), &[]).unwrap().len(), 0);
    }

    #[test]
    fn unused_and_gone_are_the_agents_own() {
        let reading = |fault: Option<&str>| Reading {
            cards: vec![Card {
                uuid: "GPU-a".into(),
                fault: fault.map(str::to_owned),
                mig: Some(vec![
                    instance("2g.20gb", 0, 2),
                    instance("2g.20gb", 2, 2),
                    instance("1g.10gb", 4, 1),
                ]),
                ..Card::default()
            }],
            ..Reading::default()
        };
        let mine = own(&[("2g.20gb", 0), ("2g.20gb", 2), ("1g.10gb", 5)]);
        let wanted = [Wanted::new(&card(), 250, 0).unwrap()];
        let idle = unused(&reading(None), &mine, &wanted);
        assert_eq!(idle.iter().map(|(of, _)| of.start).collect::<Vec<_>>(), [2]);
        let lost: BTreeSet<_> = gone(&reading(None), &mine).into_iter().collect();
        assert_eq!(lost, own(&[("1g.10gb", 5)]));
        assert_eq!(gone(&reading(Some("Gone")), &mine), []);
    }
}
