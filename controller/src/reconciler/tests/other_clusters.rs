//! Offers with a target of another cluster.

use std::sync::Arc;

use tautline_core::{
    Compliance,
    index::{Kind, Object},
    model::Offer,
    reference::Reference,
    remote::{
        Fault, RemotePod, RemotePods,
        RemoteState::{self, Current, LastKnown, Unavailable},
        RemoteTarget, Scope,
    },
};
use tautline_provider_client::{ClientConfig, ProviderClient};

use super::{
    fixture::{NS, World, offer, target},
    offer_statuses::flush,
};
use crate::{
    binding_spec::BindingSpec, executor::evaluate::evaluate, metrics::Metrics,
    violations::ViolationEvent,
};

fn db(name: &str) -> RemotePod {
    RemotePod {
        cluster: "east".into(),
        namespace: NS.into(),
        name: name.into(),
        uid: format!("uid-of-{name}").into(),
        labels: [("app", "db")].into_iter().collect(),
        place: Some("198.51.100.7:10250".into()),
    }
}

fn east(state: RemoteState, pods: Vec<RemotePod>) -> Object {
    let scope = Scope {
        cluster: "east".into(),
        namespace: NS.into(),
    };
    let pods = pods.into_iter();
    let pods = pods.map(|pod| (Arc::clone(&pod.name), Arc::new(pod)));
    Object::RemotePods(RemotePods {
        scope,
        state,
        pods: pods.collect(),
    })
}

/// A leader with an offer `o` between pods here and the pods `app=db` of `east`, and with its
/// bindings, all of them evaluated.
fn world(here: usize, there: &[&str]) -> World {
    let mut world = World::leading();
    world.add_pods(here);
    world.put(east(Current, there.iter().map(|name| db(name)).collect()));
    world.put(Object::Offer(Offer {
        remote_targets: vec![RemoteTarget {
            name: "db".into(),
            cluster: "east".into(),
            selector: target("db", "db").selector,
        }],
        ..offer("o")
    }));
    world.sync();
    world.settle();
    world.evaluate_all(Compliance::Compliant);
    world.settle();
    world
}

fn put(world: &mut World, state: RemoteState, there: &[&str]) {
    world.put(east(state, there.iter().map(|name| db(name)).collect()));
    world.sync_with(false, None);
}

#[test]
fn binding_names_the_pod_of_the_other_cluster() {
    let world = world(1, &["db-0"]);
    let (spec, _) = &world.api[&world.only_key()];
    assert_eq!(spec.targets["db"].to_string(), "east:shop:v1:Pod:db-0");
    assert_eq!(spec.targets["default"].to_string(), "shop:v1:Pod:web-0");
}

#[test]
fn cluster_that_is_away_deletes_no_binding() {
    let mut world = world(1, &["db-0", "db-1"]);
    for state in [
        LastKnown(Fault::Unreachable),
        Unavailable(Fault::Unreachable),
    ] {
        put(&mut world, state, &["db-0"]);
        assert!(world.deleted().is_empty(), "{state:?}");
    }
    put(&mut world, Current, &["db-0"]);
    assert_eq!(world.deleted().len(), 1);
    world.settle();
    assert_eq!(world.bindings().len(), 1);
}

/// Of a controller that has just started.
#[test]
fn cluster_that_is_not_known_deletes_no_binding_until_it_is_listed() {
    let mut world = world(1, &["db-0"]);
    assert!(world.index.delete(Kind::RemotePods, "east/shop"));
    world.sync_with(false, None);
    put(&mut world, Unavailable(Fault::Connecting), &[]);
    assert!(world.deleted().is_empty());
    put(&mut world, Current, &[]);
    assert_eq!(world.deleted().len(), 1, "no member has changed");
}

#[test]
fn binding_of_a_pod_that_is_gone_here_is_deleted_while_the_other_cluster_is_away() {
    let mut world = world(2, &["db-0"]);
    put(&mut world, LastKnown(Fault::Unreachable), &["db-0"]);
    world.delete(Kind::Pod, "web-0");
    world.sync();
    assert_eq!(world.deleted().len(), 1);
    world.settle();
    let (spec, _) = &world.api[&world.only_key()];
    assert_eq!(spec.targets["default"].name, "web-1");
}

#[test]
fn binding_of_another_object_or_role_is_deleted_while_the_other_cluster_is_away() {
    let mut world = world(1, &["db-0"]);
    put(&mut world, LastKnown(Fault::Unreachable), &["db-0"]);
    let (spec, status) = world.api[&world.only_key()].clone();
    let here = &spec.targets["default"];
    let in_east = Reference {
        cluster: "east".to_owned(),
        ..here.clone()
    };
    let elsewhere = Reference::pod("bank", &here.name);
    for (role, object) in [
        ("default", in_east),
        ("default", elsewhere),
        ("old", here.clone()),
    ] {
        let mut other = BindingSpec {
            name: "o-other".into(),
            uid: "other".into(),
            ..spec.clone()
        };
        other.targets.insert(role.into(), object);
        world.observe(other, status.clone());
        assert_eq!(world.deleted(), ["o-other"], "{role}");
        world.settle();
    }
    assert_eq!(world.bindings().len(), 1);
}

#[tokio::test]
async fn cluster_that_is_away_is_an_error_at_once_which_ends_no_violation() {
    let mut world = world(1, &["db-0"]);
    world.next_period(Compliance::Violation);
    world.settle();
    put(&mut world, Unavailable(Fault::Unreachable), &["db-0"]);
    let away = world.evaluations.pop().expect("it is evaluated at once");
    let calls = tautline_provider_client::Metrics::default();
    let providers = ProviderClient::new(ClientConfig::default(), calls).unwrap();
    let calls = (&providers, &Metrics::default());
    let found = evaluate(calls, &away.snapshot, &away.spec, &away.question).await;
    world.finish(&away, Some(found));
    world.settle();
    let (_, status) = &world.api[&world.only_key()];
    assert_eq!(status.compliance, Compliance::Error);
    let reason = "ClusterUnavailable: cluster east: Unreachable: ";
    assert!(status.first_reason.starts_with(reason), "{status:?}");
    assert!(matches!(
        world.violations[..],
        [ViolationEvent::Raised { .. }]
    ));
    put(&mut world, Current, &["db-0"]);
    assert_eq!(world.evaluate_all(Compliance::Compliant), 1);
    assert!(matches!(
        world.violations[1..],
        [ViolationEvent::Cleared(_)]
    ));
}

#[test]
fn change_of_a_pod_of_the_other_cluster_evaluates_its_bindings() {
    let mut world = world(1, &["db-0", "db-1"]);
    put(&mut world, Current, &["db-0", "db-1"]);
    assert!(world.evaluations.is_empty(), "it was listed again");
    let moved = RemotePod {
        place: Some("198.51.100.8:10250".into()),
        ..db("db-0")
    };
    world.put(east(Current, vec![moved, db("db-1")]));
    world.sync_with(false, None);
    assert_eq!(world.evaluate_all(Compliance::Violation), 1);
    assert!(matches!(
        world.violations[..],
        [ViolationEvent::Raised { .. }]
    ));
    let second = RemotePod {
        uid: "second".into(),
        ..db("db-0")
    };
    world.put(east(Current, vec![second, db("db-1")]));
    world.sync_with(false, None);
    assert!(matches!(
        world.violations[1..],
        [ViolationEvent::Cleared(_)]
    ));
    assert_eq!(world.evaluations.len(), 1);
}

#[test]
fn offer_status_names_the_cluster_that_is_away_after_its_grace() {
    let mut world = world(1, &["db-0"]);
    let fault = Fault::Unauthorized;
    let away = format!("False: ClusterUnavailable: {}", fault.text("east"));
    for (state, there, ready) in [
        (Current, &["db-0"][..], "True: InStep: "),
        (LastKnown(fault), &["db-0"], "True: InStep: "),
        (Unavailable(fault), &["db-0"], &*away),
        (
            Current,
            &[],
            "True: NothingSelected: target db selects nothing",
        ),
    ] {
        put(&mut world, state, there);
        world.settle();
        flush(&mut world);
        assert_eq!(world.ready(), ready);
    }
}
