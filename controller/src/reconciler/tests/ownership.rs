//! Bindings that are not the offer's, and those of offers that end.

use tautline_core::{
    index::{Kind, Object},
    model::Offer,
};

use super::{
    bindings::{foreign, name_of},
    fixture::{NS, World, offer, pod},
};
use crate::binding_spec::{BindingSpec, BindingStatus, key};

#[test]
fn compare_deletes_a_binding_that_names_the_offer_and_is_not_owned_by_it() {
    let mut world = World::with_bindings(1);
    let stranger = foreign("stranger", "o", "");
    world.observe(stranger, BindingStatus::default());
    assert_eq!(world.deleted(), ["stranger"]);
}

#[test]
fn compare_leaves_a_binding_without_the_offers_label_alone() {
    let mut world = World::with_bindings(1);
    let stranger = BindingSpec {
        labelled: false,
        ..foreign("stranger", "o", "")
    };
    world.observe(stranger, BindingStatus::default());
    world.advance_secs(5);
    assert!(world.deleted().is_empty());
}

#[test]
fn compare_reports_a_name_that_a_binding_without_the_label_has() {
    let mut world = World::leading();
    let name = name_of("o", &[("default", "web-0")]);
    let unlabelled = BindingSpec {
        labelled: false,
        ..foreign(&name, "o", "")
    };
    world.observe(unlabelled, BindingStatus::default());
    world.add_pods(1);
    world.put(Object::Offer(offer("o")));
    world.sync();
    assert!(world.created().is_empty() && world.deleted().is_empty());
    let warning = &world.warnings[0];
    assert!(
        warning.contains("does not belong to this offer"),
        "{warning}"
    );
}

#[test]
fn compare_deletes_a_binding_of_an_earlier_offer_of_the_name() {
    let mut world = World::with_bindings(1);
    world.put(Object::Offer(Offer {
        uid: "second".into(),
        ..offer("o")
    }));
    world.sync();
    world.settle();
    let (spec, _) = &world.api[&world.only_key()];
    assert_eq!(&*spec.owner, "second");
}

#[test]
fn compare_leaves_a_binding_without_an_offer_alone() {
    let mut world = World::leading();
    world.observe(foreign("orphan", "gone", "uid"), BindingStatus::default());
    world.advance_secs(120);
    assert!(world.deleted().is_empty());
}

#[test]
fn compare_leaves_bindings_of_a_deleted_offer_to_the_garbage_collector() {
    let mut world = World::with_bindings(2);
    world.delete(Kind::Offer, "o");
    world.sync();
    world.advance_secs(5);
    assert!(world.deleted().is_empty());
}

#[test]
fn compare_leaves_bindings_of_a_terminating_offer_alone() {
    let mut world = World::with_bindings(1);
    world.put(Object::Offer(Offer {
        terminating: true,
        ..offer("o")
    }));
    world.put(Object::Pod(pod("web-9", "web")));
    world.sync();
    assert!(world.created().is_empty() && world.deleted().is_empty());
}

#[test]
fn compare_reports_a_name_that_another_offers_binding_has() {
    let mut world = World::leading();
    let name = name_of("o", &[("default", "web-0")]);
    world.observe(foreign(&name, "another", "x"), BindingStatus::default());
    world.add_pods(2);
    world.put(Object::Offer(offer("o")));
    world.sync();
    let other = name_of("o", &[("default", "web-1")]);
    assert_eq!(world.created(), [other], "the others are created");
    assert!(world.deleted().is_empty());
    let text = format!(
        "WriteRefused: ConstraintPolicyBinding {name} exists and does not belong to this offer; \
         delete it"
    );
    assert_eq!(world.warnings, [text.as_str()]);
    world.settle();
    world.advance_secs(2);
    world.settle();
    assert_eq!(world.ready(), format!("False: {text}"));
}

#[test]
fn compare_creates_a_binding_once_its_foreign_namesake_is_gone() {
    let mut world = World::leading();
    let name = name_of("o", &[("default", "web-0")]);
    world.observe(foreign(&name, "another", "x"), BindingStatus::default());
    world.add_pods(1);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.vanish(&key(NS, &name));
    world.advance_secs(120);
    world.settle();
    world.advance_secs(2);
    world.settle();
    assert_eq!(world.bindings(), [name]);
    assert_eq!(world.ready(), "True: InStep: ", "the refusal is over");
}
