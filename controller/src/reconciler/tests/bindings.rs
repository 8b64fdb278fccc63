//! Offers become bindings.

use std::collections::BTreeMap;

use tautline_core::{
    Reference,
    binding::binding_name,
    index::{Kind, Object},
    model::{Offer, Pod, TargetKind, WatchedObject},
};

use super::fixture::{NS, World, limits, offer, pod, settings, target};
use crate::{
    binding_spec::{BindingSpec, BindingStatus},
    config::Config,
    reconciler::{Event, KindState, KindStates, Leadership, Write, WriteError, Written},
};

pub(super) fn name_of(offer: &str, pods: &[(&str, &str)]) -> String {
    let tuple = pods
        .iter()
        .map(|(target, pod)| ((*target).into(), Reference::pod(NS, pod)));
    binding_name(offer, &tuple.collect())
}

/// A binding as another writer could have made it.
pub(super) fn foreign(name: &str, offer: &str, owner: &str) -> BindingSpec {
    BindingSpec {
        namespace: NS.into(),
        name: name.into(),
        uid: format!("foreign-{name}").into(),
        offer: offer.into(),
        owner: owner.into(),
        labelled: true,
        terminating: false,
        targets: BTreeMap::new(),
    }
}

#[test]
fn compare_creates_one_binding_per_pod() {
    let mut world = World::leading();
    world.add_pods(3);
    world.put(Object::Offer(offer("o")));
    world.sync();
    let expected = ["web-0", "web-1", "web-2"].map(|p| name_of("o", &[("default", p)]));
    let created = world.created();
    assert_eq!(created.len(), 3);
    assert!(expected.iter().all(|name| created.contains(name)));
}

#[test]
fn compare_creates_bindings_with_their_targets() {
    let mut world = World::with_bindings(1);
    let (spec, _) = &world.api[&world.only_key()];
    assert_eq!(spec.targets["default"], Reference::pod(NS, "web-0"));
    assert_eq!((&*spec.offer, &*spec.owner), ("o", "uid-of-o"));
    world.relist();
    assert!(world.writes.is_empty(), "{:?}", world.writes);
}

#[test]
fn compare_creates_one_binding_per_pair() {
    let mut world = World::leading();
    world.add_pods(2);
    for name in ["db-0", "db-1", "db-2"] {
        world.put(Object::Pod(pod(name, "db")));
    }
    let targets = vec![target("source", "web"), target("destination", "db")];
    world.put(Object::Offer(Offer {
        targets,
        ..offer("o")
    }));
    world.sync();
    world.settle();
    assert_eq!(world.bindings().len(), 6);
    let pair = name_of("o", &[("destination", "db-2"), ("source", "web-1")]);
    assert!(world.bindings().contains(&pair));
}

#[test]
fn compare_creates_each_pair_of_one_selector_once_and_no_self_pairs() {
    let mut world = World::leading();
    world.add_pods(2);
    let targets = vec![target("a", "web"), target("b", "web")];
    world.put(Object::Offer(Offer {
        targets,
        ..offer("o")
    }));
    world.sync();
    world.settle();
    let pair = name_of("o", &[("a", "web-0"), ("b", "web-1")]);
    assert_eq!(world.bindings(), [pair]);
}

#[test]
fn compare_creates_bindings_of_each_of_many_offers() {
    let mut world = World::leading();
    world.add_pods(2);
    for i in 0..20 {
        world.put(Object::Offer(offer(&format!("o{i}"))));
    }
    world.sync();
    world.settle();
    assert_eq!(world.bindings().len(), 40);
}

#[test]
fn compare_creates_no_binding_while_a_target_selects_nothing() {
    let mut world = World::leading();
    world.add_pods(2);
    let targets = vec![target("a", "web"), target("b", "absent")];
    world.put(Object::Offer(Offer {
        targets,
        ..offer("o")
    }));
    world.sync();
    assert!(world.created().is_empty());
}

#[test]
fn compare_ignores_pods_of_other_namespaces() {
    let mut world = World::leading();
    world.put(Object::Pod(Pod {
        namespace: "other".into(),
        ..pod("web-0", "web")
    }));
    world.put(Object::Offer(offer("o")));
    world.sync();
    assert!(world.created().is_empty());
}

#[test]
fn compare_keeps_bindings_that_fit() {
    let mut world = World::with_bindings(3);
    let before = world.api.clone();
    world.sync();
    world.relist();
    world.advance_secs(5);
    world.settle();
    let specs = |api: &BTreeMap<_, (BindingSpec, BindingStatus)>| -> Vec<BindingSpec> {
        api.values().map(|(spec, _)| spec.clone()).collect()
    };
    assert_eq!(specs(&world.api), specs(&before));
}

#[test]
fn compare_deletes_the_binding_of_a_pod_that_is_gone() {
    let mut world = World::with_bindings(2);
    world.delete(Kind::Pod, "web-0");
    world.sync();
    assert_eq!(world.deleted(), [name_of("o", &[("default", "web-0")])]);
    world.settle();
    assert_eq!(world.bindings(), [name_of("o", &[("default", "web-1")])]);
}

#[test]
fn compare_deletes_the_binding_of_a_finished_pod() {
    let mut world = World::with_bindings(1);
    world.put(Object::Pod(Pod {
        finished: true,
        ..pod("web-0", "web")
    }));
    world.sync();
    assert_eq!(world.deleted().len(), 1);
}

#[test]
fn compare_deletes_the_binding_of_a_relabelled_pod() {
    let mut world = World::with_bindings(1);
    world.put(Object::Pod(pod("web-0", "other")));
    world.sync();
    assert_eq!(world.deleted().len(), 1);
}

#[test]
fn compare_replaces_bindings_when_the_selector_changes() {
    let mut world = World::with_bindings(1);
    world.put(Object::Pod(pod("db-0", "db")));
    world.put(Object::Offer(Offer {
        targets: vec![target("default", "db")],
        ..offer("o")
    }));
    world.sync();
    world.settle();
    assert_eq!(world.bindings(), [name_of("o", &[("default", "db-0")])]);
}

#[test]
fn compare_recreates_a_binding_that_someone_deletes() {
    let mut world = World::with_bindings(1);
    let key = world.only_key();
    world.vanish(&key);
    assert_eq!(world.created().len(), 1);
    world.settle();
    assert_eq!(world.only_key(), key);
}

#[test]
fn compare_recreates_a_binding_whose_targets_someone_changes() {
    let mut world = World::with_bindings(1);
    let (mut spec, status) = world.api[&world.only_key()].clone();
    spec.targets = [("default".into(), Reference::pod(NS, "db-0"))].into();
    world.observe(spec, status);
    assert_eq!(world.deleted().len(), 1);
    world.settle();
    let (spec, _) = &world.api[&world.only_key()];
    assert_eq!(spec.targets["default"], Reference::pod(NS, "web-0"));
}

#[test]
fn compare_replaces_more_bindings_than_can_be_written_at_once() {
    let mut world = World::with_bindings(40);
    world.put(Object::Offer(Offer {
        uid: "second".into(),
        ..offer("o")
    }));
    world.sync();
    world.settle();
    assert_eq!(world.bindings().len(), 40);
    let owned = |(spec, _): &(BindingSpec, BindingStatus)| &*spec.owner == "second";
    assert!(world.api.values().all(owned), "{:?}", world.api);
}

#[test]
fn compare_keeps_bindings_of_an_offer_that_became_malformed() {
    let mut world = World::with_bindings(2);
    world.sync_with(false, Some(&[("o", "spec.grace: bad")]));
    world.advance_secs(5);
    world.settle();
    assert_eq!(world.bindings().len(), 2);
    assert_eq!(world.ready(), "False: Invalid: spec.grace: bad");
}

#[test]
fn compare_does_not_delete_a_terminating_binding_again() {
    let mut world = World::with_bindings(1);
    let (mut spec, status) = world.api[&world.only_key()].clone();
    spec.terminating = true;
    world.observe(spec, status);
    world.delete(Kind::Pod, "web-0");
    world.sync();
    assert!(world.deleted().is_empty());
}

#[test]
fn compare_creates_up_to_the_cap_and_says_so() {
    let mut world = World::leading_with(Config {
        limits: limits(5, 1_000, 10_000),
        ..settings()
    });
    world.add_pods(8);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.settle();
    assert_eq!(world.bindings().len(), 5);
    let text = "CapExceeded: the targets make 8 bindings, and only the first 5 exist: an offer \
                may have 5; select fewer objects, split the offer, or raise --max-bindings";
    assert_eq!(world.warnings[0], text);
    world.advance_secs(2);
    world.settle();
    let ready = world.ready();
    assert!(ready.starts_with("False: CapExceeded: "), "{ready}");
}

#[test]
fn compare_runs_once_for_many_creations() {
    let mut world = World::leading_with(Config {
        limits: limits(50, 1_000, 10_000),
        ..settings()
    });
    world.add_pods(60);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.settle();
    assert_eq!(world.bindings().len(), 50);
    // Each comparison warns of the cap.
    assert_eq!(world.warnings.len(), 1, "{:?}", world.warnings);
}

#[test]
fn compare_gives_colliding_names_a_number() {
    // Found by trying numbers: both references hash alike.
    let mut world = World::leading();
    for name in ["p579599", "p762382"] {
        world.put(Object::Pod(Pod {
            namespace: "default".into(),
            ..pod(name, "web")
        }));
    }
    world.put(Object::Offer(Offer {
        namespace: "default".into(),
        ..offer("o")
    }));
    world.sync();
    let names = world.created();
    assert_eq!(names[1], format!("{}-2", names[0]));
}

#[test]
fn compare_keeps_colliding_bindings_apart_after_a_restart() {
    let mut world = World::leading();
    for name in ["p579599", "p762382"] {
        world.put(Object::Pod(pod(name, "web")));
    }
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.settle();
    world.restart();
    world.lead(Leadership::Leading);
    assert!(world.created().is_empty() && world.deleted().is_empty());
}

#[test]
fn compare_names_bindings_with_the_offers_name_and_a_dns_suffix() {
    let mut world = World::leading();
    world.add_pods(20);
    let long = "o".repeat(63);
    world.put(Object::Offer(offer(&long)));
    world.sync();
    world.settle();
    for name in world.bindings() {
        assert!(tautline_core::dns::is_subdomain(&name), "{name}");
        assert!(name.starts_with(&format!("{long}-")));
        assert!(name.len() <= 63 + 1 + 10, "{name}");
    }
}

#[test]
fn compare_takes_a_binding_that_exists_already_for_its_own() {
    let mut world = World::leading();
    world.add_pods(1);
    world.put(Object::Offer(offer("o")));
    world.sync();
    let Some(Write::Create(new)) = world.writes.pop() else {
        panic!("{:?}", world.writes)
    };
    let existing = BindingSpec {
        targets: new.targets.clone(),
        ..foreign(&new.name, "o", "uid-of-o")
    };
    let existing = Box::new((existing, BindingStatus::default()));
    let result = Ok(Written::Binding(existing, true));
    world.apply(Event::Written(Write::Create(new), result));
    world.advance_secs(5);
    assert!(world.created().is_empty() && world.deleted().is_empty());
}

#[test]
fn compare_deletes_an_existing_binding_that_does_not_fit() {
    let mut world = World::leading();
    world.add_pods(1);
    world.put(Object::Offer(offer("o")));
    world.sync();
    let Some(Write::Create(new)) = world.writes.pop() else {
        panic!("{:?}", world.writes)
    };
    let existing = foreign(&new.name, "o", "earlier");
    let existing = Box::new((existing, BindingStatus::default()));
    let (name, result) = (new.name.clone(), Ok(Written::Binding(existing, true)));
    world.apply(Event::Written(Write::Create(new), result));
    assert_eq!(world.deleted(), [name]);
}

#[test]
fn compare_deletes_a_binding_whose_pod_went_while_it_was_created() {
    let mut world = World::leading();
    world.add_pods(1);
    world.put(Object::Offer(offer("o")));
    world.sync();
    assert_eq!(world.created().len(), 1);
    world.delete(Kind::Pod, "web-0");
    world.sync();
    assert!(world.deleted().is_empty(), "the write is under way");
    world.settle();
    assert!(world.bindings().is_empty());
}

#[test]
fn compare_counts_the_writes_of_an_earlier_offer_of_the_name() {
    let mut world = World::with_bindings(2);
    world.delete(Kind::Pod, "web-0");
    world.sync();
    let earlier = world.writes.remove(0);
    world.delete(Kind::Offer, "o");
    world.sync();
    world.collect_garbage();
    world.put(Object::Offer(Offer {
        uid: "second".into(),
        ..offer("o")
    }));
    world.sync();
    assert_eq!(world.created().len(), 1);
    world.apply(Event::Written(earlier, Err(WriteError::Gone)));
    world.delete(Kind::Pod, "web-1");
    world.sync();
    world.settle();
    assert!(world.bindings().is_empty(), "its pod went meanwhile");
}

#[test]
fn compare_creates_no_binding_twice_while_its_write_is_under_way() {
    let mut world = World::leading();
    world.add_pods(2);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.put(Object::Pod(pod("web-9", "web")));
    world.sync();
    world.advance_secs(1);
    assert_eq!(world.created().len(), 3);
}

fn fleet(name: &str) -> WatchedObject {
    WatchedObject {
        api_version: "fleet.io/v1".into(),
        kind: "Cluster".into(),
        namespace: NS.into(),
        name: name.into(),
        labels: [("app", "web")].into_iter().collect(),
    }
}

fn fleet_offer() -> Offer {
    let mut target = target("default", "web");
    (target.kind, target.api_version) = (TargetKind::Cluster, "fleet.io/v1".to_owned());
    Offer {
        targets: vec![target],
        ..offer("o")
    }
}

fn fleet_kinds(listed: bool) -> KindStates {
    let mut kinds = KindStates::default();
    let state = KindState {
        listed,
        missing: None,
    };
    kinds.insert(&fleet_offer().targets[0], state);
    kinds
}

fn fleet_world() -> World {
    let mut world = World::leading();
    world.kinds(fleet_kinds(true));
    world.put(Object::Dynamic(fleet("east")));
    world.put(Object::Offer(fleet_offer()));
    world.sync();
    world.settle();
    assert_eq!(world.bindings().len(), 1);
    world
}

#[test]
fn compare_deletes_no_binding_before_its_kind_is_listed() {
    let mut world = fleet_world();
    world.kinds(fleet_kinds(false));
    world.index.reset_dynamic("fleet.io/v1", "Cluster", vec![]);
    world.sync();
    world.advance_secs(60);
    assert!(world.deleted().is_empty());
}

#[test]
fn compare_deletes_late_once_the_kind_is_listed() {
    let mut world = fleet_world();
    world.kinds(fleet_kinds(false));
    world.index.reset_dynamic("fleet.io/v1", "Cluster", vec![]);
    world.sync();
    world.kinds(fleet_kinds(true));
    assert_eq!(world.deleted().len(), 1);
}

#[test]
fn compare_deletes_a_foreign_binding_before_its_kind_is_listed() {
    let mut world = fleet_world();
    world.kinds(fleet_kinds(false));
    world.observe(foreign("stranger", "o", "x"), BindingStatus::default());
    assert_eq!(world.deleted(), ["stranger"]);
}

#[test]
fn compare_runs_16_writes_at_once_and_all_in_the_end() {
    let mut world = World::leading();
    world.add_pods(60);
    world.put(Object::Offer(offer("o")));
    world.sync();
    assert_eq!(world.created().len(), 16);
    let first = world
        .writes
        .iter()
        .position(|w| matches!(w, Write::Create(_)));
    let write = world.writes.remove(first.unwrap());
    world.accept(write);
    assert_eq!(world.created().len(), 16, "one ends, one begins");
    world.settle();
    assert_eq!(world.bindings().len(), 60);
}

#[test]
fn compare_gives_offers_turns() {
    let mut world = World::leading();
    world.add_pods(60);
    for name in ["a", "b", "c", "d"] {
        world.put(Object::Offer(offer(name)));
    }
    world.sync();
    for name in ["a", "b", "c", "d"] {
        let of_offer = |n: &&String| n.starts_with(&format!("{name}-"));
        let created = world.created();
        assert_eq!(created.iter().filter(of_offer).count(), 4, "{created:?}");
    }
}

#[test]
fn compare_stops_the_writes_of_a_deleted_offer() {
    let mut world = World::leading();
    world.add_pods(60);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.delete(Kind::Offer, "o");
    world.sync();
    world.settle();
    assert_eq!(world.bindings().len(), 16, "those that were under way");
}

#[test]
fn reconciler_counts_bindings_by_compliance() {
    let mut world = World::with_bindings(3);
    world.advance_secs(1);
    assert_eq!(world.counts.bindings, [0, 3, 0, 0, 0]);
    world.delete(Kind::Pod, "web-0");
    world.sync();
    world.settle();
    world.advance_secs(1);
    assert_eq!(world.counts.bindings, [0, 2, 0, 0, 0]);
}
