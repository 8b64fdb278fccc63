//! Providers, policies and pods change: bindings are evaluated at once.

use std::{sync::Arc, time::Duration};

use tautline_core::{
    Compliance,
    index::{Kind, Object},
    model::{Offer, Pod, Service},
};

use super::fixture::{World, offer, pod, policy, rule, service, slice};
use crate::violations::ViolationEvent;

fn net() -> Service {
    service("tautline-system", "net")
}

#[test]
fn cluster_change_evaluates_bindings_of_an_unreachable_provider() {
    let mut world = World::with_bindings(2);
    world.put(Object::EndpointSlice(slice(&net(), &[])));
    world.sync();
    assert_eq!(world.evaluations.len(), 2);
}

#[test]
fn cluster_change_evaluates_bindings_when_addresses_change() {
    let mut world = World::with_bindings(2);
    world.put(Object::EndpointSlice(slice(&net(), &["10.0.0.2"])));
    world.sync();
    assert_eq!(world.evaluations.len(), 2);
}

#[test]
fn cluster_change_evaluates_bindings_when_the_provider_requires_tls() {
    let mut world = World::with_bindings(1);
    world.put(Object::Service(Service {
        tls_required: true,
        ..net()
    }));
    world.sync();
    assert_eq!(world.evaluations.len(), 1);
}

#[test]
fn cluster_change_calls_no_provider_that_was_removed() {
    let mut world = World::with_bindings(1);
    world.index.delete(Kind::Service, "tautline-system/net");
    world.sync();
    let [evaluate] = &world.evaluations[..] else {
        panic!("{:?}", world.evaluations)
    };
    assert!(evaluate.question.providers.is_empty());
    let rules = evaluate.question.policies[0].rules.as_ref().unwrap();
    assert!(rules[0].1.is_none());
}

#[test]
fn cluster_change_calls_no_provider_whose_label_was_removed() {
    let mut world = World::with_bindings(1);
    world.put(Object::Service(Service {
        rules: Vec::new(),
        ..net()
    }));
    world.sync();
    assert_eq!(world.evaluations.len(), 1);
    assert!(world.evaluations[0].providers.is_empty());
}

#[test]
fn cluster_change_calls_the_provider_of_the_own_namespace_once_it_appears() {
    let mut world = World::with_bindings(1);
    world.put(Object::Service(service("shop", "own")));
    world.sync();
    assert_eq!(world.evaluations.len(), 1);
    assert_eq!(&*world.evaluations[0].question.providers[0], "shop/own");
}

#[test]
fn cluster_change_ignores_providers_of_untrusted_namespaces() {
    let mut world = World::with_bindings(1);
    world.put(Object::Service(Service {
        priority: 100,
        ..service("tenant", "eager")
    }));
    world.sync();
    assert!(world.evaluations.is_empty());
    world.advance_secs(11);
    let providers = &world.evaluations[0].question.providers;
    assert_eq!(&*providers[0], "tautline-system/net");
}

#[test]
fn cluster_change_evaluates_nothing_for_services_that_provide_nothing() {
    let mut world = World::with_bindings(2);
    world.put(Object::Service(Service {
        rules: vec!["other".into()],
        ..service("tautline-system", "another")
    }));
    world.sync();
    assert!(world.evaluations.is_empty());
}

#[test]
fn cluster_change_evaluates_bindings_when_a_rule_changes() {
    let mut world = World::with_bindings(2);
    world.put(Object::Policy(policy("fast", vec![rule("9ms")])));
    world.sync();
    assert_eq!(world.evaluations.len(), 2);
    let rules = world.evaluations[0].question.policies[0].rules.clone();
    assert_eq!(rules.unwrap()[0].0.limit, "9ms");
}

#[test]
fn cluster_change_evaluates_bindings_whose_policy_is_deleted() {
    let mut world = World::with_bindings(1);
    world.delete(Kind::Policy, "fast");
    world.sync();
    assert_eq!(world.evaluations.len(), 1);
    assert!(world.evaluations[0].question.policies[0].rules.is_none());
}

#[test]
fn cluster_change_ignores_policies_that_no_offer_names() {
    let mut world = World::with_bindings(1);
    world.put(Object::Policy(policy("other", vec![rule("1ms")])));
    world.sync();
    assert!(world.evaluations.is_empty());
}

#[test]
fn cluster_change_evaluates_bindings_when_the_offer_changes() {
    let mut world = World::with_bindings(2);
    world.put(Object::Offer(Offer {
        grace: Duration::from_secs(5),
        ..offer("o")
    }));
    world.sync();
    assert_eq!(world.evaluations.len(), 2);
    assert_eq!(world.evaluations[0].grace, Duration::from_secs(5));
}

#[test]
fn cluster_change_evaluates_only_the_binding_whose_pod_changed() {
    let mut world = World::with_bindings(3);
    world.put(Object::Pod(Pod {
        node: Some("n2".into()),
        ..pod("web-1", "web")
    }));
    world.sync();
    let [evaluate] = &world.evaluations[..] else {
        panic!("{:?}", world.evaluations)
    };
    assert_eq!(evaluate.spec.targets["default"].name, "web-1");
}

#[test]
fn cluster_change_evaluates_with_the_present_snapshot() {
    let mut world = World::with_bindings(1);
    world.put(Object::Pod(Pod {
        node: Some("n7".into()),
        ..pod("web-0", "web")
    }));
    world.sync();
    let pod = world.evaluations[0].snapshot.pod("shop", "web-0").unwrap();
    assert_eq!(pod.node.as_deref(), Some("n7"));
}

#[test]
fn cluster_change_shares_one_question_among_the_bindings_of_an_offer() {
    let mut world = World::with_bindings(3);
    world.advance_secs(11);
    let [first, rest @ ..] = &world.evaluations[..] else {
        panic!("{:?}", world.evaluations)
    };
    assert!(
        rest.iter()
            .all(|e| Arc::ptr_eq(&e.question, &first.question))
    );
}

#[test]
fn cluster_change_starts_a_new_violation_for_a_replaced_pod() {
    let mut world = World::with_bindings(1);
    world.next_period(Compliance::Violation);
    assert!(matches!(
        world.violations[..],
        [ViolationEvent::Raised { .. }]
    ));
    world.violations.clear();
    world.put(Object::Pod(Pod {
        uid: "second".into(),
        ..pod("web-0", "web")
    }));
    world.sync();
    assert!(matches!(world.violations[..], [ViolationEvent::Cleared(_)]));
    assert_eq!(world.evaluations.len(), 1, "the new pod is evaluated");
}

#[test]
fn cluster_change_starts_a_new_grace_for_a_replaced_pod() {
    let mut world = World::with_bindings(1);
    world.put(Object::Offer(Offer {
        grace: Duration::from_secs(30),
        period: Duration::from_secs(3600),
        ..offer("o")
    }));
    world.sync();
    assert_eq!(world.evaluate_all(Compliance::Violation), 1);
    world.advance_secs(29);
    world.put(Object::Pod(Pod {
        uid: "second".into(),
        ..pod("web-0", "web")
    }));
    world.sync();
    world.advance_secs(2);
    assert_eq!(world.evaluate_all(Compliance::Violation), 1);
    world.settle();
    let (_, status) = &world.api[&world.only_key()];
    assert_eq!(format!("{:?}", status.compliance), "Limit");
    assert!(world.violations.is_empty());
}
