//! Cards with MIG: shares are instances, whose places the provider plans.

use tautline_gpu_placement::mig::{MigLayout, MigPlace, MigProfile, Occupied};

use super::*;

fn layout() -> MigLayout {
    let profile = |(name, milli, size, compute, starts): (&str, u16, u8, u8, &[u8])| MigProfile {
        name: name.into(),
        milli,
        size,
        compute,
        starts: starts.to_vec(),
    };
    let profiles: [(&str, u16, u8, u8, &[u8]); 6] = [
        ("1g.10gb", 125, 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
        ("1g.20gb", 250, 2, 1, &[0, 2, 4, 6]),
        ("2g.20gb", 250, 2, 2, &[0, 2, 4]),
        ("3g.40gb", 500, 4, 3, &[0, 4]),
        ("4g.40gb", 500, 4, 4, &[0]),
        ("7g.80gb", 1000, 8, 7, &[0]),
    ];
    MigLayout {
        profiles: profiles.into_iter().map(profile).collect(),
        taken: Vec::new(),
    }
}

fn mig(uuid: &str, index: u32) -> InventoryCard {
    InventoryCard {
        mig: Some(layout()),
        ..card(uuid, index)
    }
}

fn mig_node(cards: &[InventoryCard]) -> (ClusterStore, GpuSlice) {
    let store = ClusterStore::default();
    let Object::Node(mut of) = node("n", cards) else {
        unreachable!()
    };
    let inventory = NodeInventory {
        cards: cards.to_vec(),
        limits: "mig".into(),
    };
    let inventory = serde_json::to_string(&inventory).unwrap();
    of.annotations = [(INVENTORY_ANNOTATION, inventory.as_str())]
        .into_iter()
        .collect();
    store.apply(Object::Node(of));
    let provider = GpuSlice::new(store.clone(), Config::default());
    (store, provider)
}

#[test]
fn shares_become_instances_with_a_place() {
    let (_, provider) = mig_node(&[mig("GPU-a", 0)]);
    let milli = |pod: &str, milli| reserve(&provider, pod, "true", &[(MILLI_RESOURCE, milli)]);
    assert_eq!(milli("a", 200).unwrap(), "GPU-a:250@4");
    assert_eq!(milli("b", 500).unwrap(), "GPU-a:500@0");
    // Two compute slices cannot start there, one can.
    assert_eq!(milli("c", 250).unwrap(), "GPU-a:250@6");
    assert!(milli("d", 1).is_err());
}

#[test]
fn large_shares_and_memory_are_rounded_up() {
    let (_, provider) = mig_node(&[mig("GPU-a", 0), mig("GPU-b", 1)]);
    let memory = [(MEMORY_RESOURCE, 21)];
    assert_eq!(
        reserve(&provider, "a", "true", &memory).unwrap(),
        "GPU-a:500@0"
    );
    let large = [(MILLI_RESOURCE, 600)];
    assert_eq!(
        reserve(&provider, "b", "true", &large).unwrap(),
        "GPU-b:1000@0"
    );
}

#[test]
fn cards_without_mig_are_given_whole_only() {
    let (_, provider) = mig_node(&[card("GPU-a", 0)]);
    let milli = |pod: &str, milli| reserve(&provider, pod, "true", &[(MILLI_RESOURCE, milli)]);
    let refused = milli("a", 250).unwrap_err();
    assert!(
        refused.contains("NoSharedGpu: its cards are given whole"),
        "{refused}"
    );
    assert_eq!(milli("a", 1000).unwrap(), "GPU-a:1000");
}

#[test]
fn an_administrators_instance_and_pods_without_records_are_in_the_way() {
    let mut card = mig("GPU-a", 0);
    card.mig.as_mut().unwrap().taken = vec![MigPlace {
        start: 0,
        size: 4,
        compute: 4,
    }];
    let (store, provider) = mig_node(&[card]);
    store.apply(pod("bare", &[(MILLI_RESOURCE, 250)], None));
    let milli = |pod: &str, milli| reserve(&provider, pod, "true", &[(MILLI_RESOURCE, milli)]);
    assert!(milli("a", 500).is_err());
    assert_eq!(milli("a", 250).unwrap(), "GPU-a:250@6");
    assert!(milli("b", 125).is_err());
}

proptest! {
    /// In any order of pods that come and go no memory slice is given twice, and each record means
    /// an instance that is large enough.
    #[test]
    fn no_slice_is_given_twice(
        steps in prop::collection::vec((0..10_u8, 1..=1000_i64, any::<bool>()), 1..40),
    ) {
        let (store, provider) = mig_node(&[mig("GPU-a", 0), mig("GPU-b", 1)]);
        let mut records: BTreeMap<u8, (String, String)> = BTreeMap::new();
        for (name, milli, bind) in steps {
            if let Some((_, id)) = records.remove(&name) {
                // The reservation, or the pod that took its place.
                store.delete(tautline_core::index::Kind::Pod, &format!("ml/{name}"));
                provider.release_at(Instant::now(), &id);
                continue;
            }
            let own = [(MILLI_RESOURCE, milli)];
            let request = ReservationRequest {
                workload: Reference::pod("ml", &name.to_string()),
                uid: name.to_string(),
                node: "n".into(),
                rule: rule("true"),
                hold: HOLD,
                details: Some(workload(&own)),
                ..ReservationRequest::default()
            };
            let Ok(reserved) = provider.reserve_at(Instant::now(), request) else { continue };
            let record = reserved.annotations[DEVICES_ANNOTATION].clone();
            if bind {
                store.apply(pod(&name.to_string(), &own, Some(&record)));
            }
            records.insert(name, (record, reserved.id));
            let mut taken: BTreeMap<String, Occupied> = BTreeMap::new();
            for (name, (record, _)) in &records {
                for part in device_annotation::parse(record, 1000).unwrap() {
                    let place = layout().place_of(part.milli, part.start.unwrap()).unwrap();
                    let of_card = taken.entry(part.card.to_string()).or_default();
                    prop_assert!(of_card.is_free(place), "{}: {:?}", name, records);
                    of_card.add(place);
                }
            }
            let parts = device_annotation::parse(&records[&name].0, 1000).unwrap();
            prop_assert!(i64::from(parts[0].milli) >= milli);
        }
    }
}
