use std::time::Duration;

use proptest::prelude::*;
use tautline_core::{
    index::{Kind, Object},
    model::{self, TargetKind},
    remote::{RemotePod, RemotePods, RemoteState, RemoteTarget, Scope},
    selector::Selector,
};
use tautline_runtime::cluster_store::ClusterStore;

use super::*;
use crate::{BandwidthTable, ZONE};

pub(crate) fn node(name: &str, zone: &str) -> Object {
    Object::Node(model::Node {
        name: name.into(),
        labels: [(ZONE, zone)].into_iter().collect(),
        ..model::Node::default()
    })
}

pub(crate) fn pod(name: &str, app: &str, node: Option<&str>) -> Object {
    Object::Pod(model::Pod {
        namespace: "shop".into(),
        name: name.into(),
        labels: [("app", app)].into_iter().collect(),
        node: node.map(Into::into),
        ..model::Pod::default()
    })
}

/// An offer between the pods of two apps.
pub(crate) fn offer(name: &str, apps: [&str; 2]) -> Object {
    let target = |app: &str| model::Target {
        name: app.into(),
        kind: TargetKind::Pod,
        api_version: String::new(),
        selector: Selector {
            match_labels: vec![("app".into(), app.to_owned())],
            ..Selector::default()
        },
    };
    Object::Offer(model::Offer {
        namespace: "shop".into(),
        name: name.into(),
        targets: apps.map(target).to_vec(),
        policies: vec![name.into()],
        period: Duration::from_secs(60),
        ..model::Offer::default()
    })
}

pub(crate) fn policy(name: &str, request: &str) -> Object {
    Object::Policy(model::Policy {
        namespace: "shop".into(),
        name: name.into(),
        rules: vec![model::Rule {
            name: RULE.into(),
            request: request.into(),
            ..model::Rule::default()
        }],
    })
}

fn caps() -> Arc<Tables<Bandwidth>> {
    let mut table = BandwidthTable::default();
    table
        .add("from,to,bits_per_second\nzb,za,10G\na1,zb,5G\n")
        .unwrap();
    Arc::new(table.into())
}

const ZONES: RowKey<'_> = ("za", "zb");

#[test]
fn bindings_reserve_on_nics_and_on_the_way() {
    let (store, reservations, caps) = (ClusterStore::default(), Reservations::default(), caps());
    let now = || {
        reservations.at(
            &TrustedNamespaces::default(),
            &store.snapshot(),
            &caps,
            None,
        )
    };
    for (name, zone) in [("a1", "za"), ("a2", "za"), ("b1", "zb"), ("b2", "zb")] {
        store.apply(node(name, zone));
    }
    store.apply(offer("fast", ["web", "db"]));
    store.apply(pod("web-0", "web", Some("a2")));
    store.apply(pod("web-1", "web", Some("a1")));
    store.apply(pod("db-0", "db", Some("b1")));
    assert_eq!(now().of_node("b1", None), 0, "no policy yet");
    store.apply(policy("fast", "1G"));
    let reserved = now();
    assert_eq!(reserved.of_node("b1", None), 2_000_000_000);
    assert_eq!(reserved.of_node("a1", None), 1_000_000_000);
    assert_eq!(reserved.of_row(ZONES, None), 1_000_000_000);
    assert_eq!(
        reserved.of_row(("a1", "zb"), None),
        1_000_000_000,
        "the more specific row"
    );
    assert_eq!(reserved.by_object("shop", "db-0").count(), 2);
    let targets = [
        Reference::pod("shop", "db-0"),
        Reference::pod("shop", "web-1"),
    ];
    let targets: Vec<&Reference> = targets.iter().collect();
    let found = reserved.of_binding(&targets, 1_000_000_000).unwrap();
    assert_eq!(
        reserved.totals.all[found].pairs,
        [("a1".into(), "b1".into())]
    );
    assert_eq!(reserved.of_binding(&targets, 1), None);
    assert!(Arc::ptr_eq(&now(), &reserved), "nothing changed");

    store.apply(pod("web-0", "web", Some("b1")));
    assert_eq!(
        now().of_row(ZONES, None),
        0,
        "on the same node nothing is reserved"
    );
    store.apply(policy("fast", "2G"));
    assert_eq!(now().of_node("b1", None), 2_000_000_000);
    store.apply(policy("fast", "lots"));
    assert_eq!(now().of_node("b1", None), 0, "no number, nothing reserved");
    store.apply(policy("fast", "3G"));
    store.delete(Kind::Pod, "shop/web-1");
    assert_eq!(now().of_node("a1", None), 0);
    store.delete(Kind::Offer, "shop/fast");
    assert_eq!(now().of_node("b1", None), 0);
}

#[test]
fn offers_with_targets_of_other_clusters_reserve_nothing() {
    let (store, reservations, caps) = (ClusterStore::default(), Reservations::default(), caps());
    for (name, zone) in [("a1", "za"), ("b1", "zb")] {
        store.apply(node(name, zone));
    }
    store.apply(policy("fast", "1G"));
    store.apply(pod("web-0", "web", Some("a1")));
    store.apply(pod("db-0", "db", Some("b1")));
    let in_east = RemotePod {
        cluster: "east".into(),
        namespace: "shop".into(),
        name: "db-0".into(),
        place: Some("203.0.113.7:10250".into()),
        ..RemotePod::default()
    };
    let reference = in_east.reference();
    store.apply(Object::RemotePods(RemotePods {
        scope: Scope {
            cluster: "east".into(),
            namespace: "shop".into(),
        },
        state: RemoteState::Current,
        pods: [("db-0".into(), Arc::new(in_east))].into(),
    }));
    let put = |remote_targets: Vec<RemoteTarget>| {
        let Object::Offer(offer) = offer("fast", ["web", "db"]) else {
            unreachable!()
        };
        store.apply(Object::Offer(Offer {
            remote_targets,
            ..offer
        }));
        let trusted = TrustedNamespaces::default();
        reservations.at(&trusted, &store.snapshot(), &caps, None)
    };
    let reserved = put(Vec::new());
    assert_eq!(reserved.of_node("a1", None), 1_000_000_000);
    let web = Reference::pod("shop", "web-0");
    let of_binding = |db: &Reference| reserved.of_binding(&[db, &web], 1_000_000_000);
    assert_eq!(of_binding(&Reference::pod("shop", "db-0")), Some(0));
    assert_eq!(of_binding(&reference), None, "a pod of the same name");
    let reserved = put(vec![RemoteTarget {
        name: "there".into(),
        cluster: "east".into(),
        selector: Selector::default(),
    }]);
    assert_eq!(reserved.of_node("a1", None), 0);
}

/// What may happen to the cluster.
#[derive(Clone, Debug)]
enum Event {
    Pod(usize, Option<usize>),
    Gone(usize),
    Policy(usize, u32),
    Offer(usize, bool),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0usize..8, proptest::option::of(0usize..4)).prop_map(|(p, n)| Event::Pod(p, n)),
        1 => (0usize..8).prop_map(Event::Gone),
        1 => (0usize..2, 0u32..4).prop_map(|(p, r)| Event::Policy(p, r)),
        1 => (0usize..2, any::<bool>()).prop_map(|(o, there)| Event::Offer(o, there)),
    ]
}

proptest! {
    #[test]
    fn incremental_reservations_equal_fresh_ones(events in proptest::collection::vec(any_event(), 0..40)) {
        let (store, reservations, caps) = (ClusterStore::default(), Reservations::default(), caps());
        let nodes = ["a1", "a2", "b1", "b2"];
        for name in nodes {
            store.apply(node(name, &format!("z{}", &name[..1])));
        }
        let apps = ["web", "db", "cache"];
        for event in events {
            match event {
                Event::Pod(i, on) => store.apply(pod(&format!("p{i}"), apps[i % 3], on.map(|n| nodes[n]))),
                Event::Gone(i) => store.delete(Kind::Pod, &format!("shop/p{i}")),
                Event::Policy(i, request) => store.apply(policy(&format!("o{i}"), &format!("{request}M"))),
                Event::Offer(i, true) => store.apply(offer(&format!("o{i}"), [apps[i], apps[i + 1]])),
                Event::Offer(i, false) => store.delete(Kind::Offer, &format!("shop/o{i}")),
            }
            let snapshot = store.snapshot();
            let (old, fresh) = (reservations.at(&TrustedNamespaces::default(), &snapshot, &caps, None), Reservations::default().at(&TrustedNamespaces::default(), &snapshot, &caps, None));
            // Their order differs: the fresh ones were all there from the start.
            let nodes = |of: &ReservedView| nodes.map(|node| of.of_node(node, None));
            prop_assert_eq!(nodes(&old), nodes(&fresh));
            let rows = [ZONES, ("a1", "zb")];
            let rows = |of: &ReservedView| rows.map(|row| of.of_row(row, None));
            prop_assert_eq!(rows(&old), rows(&fresh));
            // Each pair counts at both of its ends.
            let found: u64 = old.totals.all.iter().map(|h| h.bits * h.pairs.len() as u64).sum();
            let sums = old.totals.by_node.values().map(|sum| sum.before(None));
            prop_assert_eq!(sums.sum::<u64>(), 2 * found);
            // What comes before the last and the last are all.
            for (node, sum) in &old.totals.by_node {
                let last = sum.0.last().unwrap().0;
                let own = &old.totals.all[last];
                let pairs = own.pairs.iter().filter(|(a, b)| **a == **node || **b == **node);
                let before = old.of_node(node, Some(last));
                prop_assert_eq!(before + own.bits * pairs.count() as u64, old.of_node(node, None));
            }
        }
    }
}

#[test]
fn who_came_first_is_before_those_who_grew_or_moved_later() {
    let (store, reservations, caps) = (ClusterStore::default(), Reservations::default(), caps());
    for (name, zone) in [("a1", "za"), ("a2", "za"), ("b1", "zb")] {
        store.apply(node(name, zone));
    }
    let tenant = |name: &str, created_unix: i64, app: &str, on: &str| {
        let Object::Pod(of) = pod(name, app, Some(on)) else {
            unreachable!()
        };
        Object::Pod(model::Pod { created_unix, ..of })
    };
    // The offer and the pods of the second are older, and ask for little at first.
    for (name, apps) in [("first", ["web", "db"]), ("second", ["x", "y"])] {
        store.apply(offer(name, apps));
    }
    store.apply(tenant("web-0", 9, "web", "a1"));
    store.apply(tenant("db-0", 9, "db", "b1"));
    store.apply(tenant("x-0", 1, "x", "a1"));
    store.apply(tenant("y-0", 1, "y", "b1"));
    store.apply(policy("first", "4G"));
    store.apply(policy("second", "1M"));
    let before_first = || {
        let reserved = reservations.at(
            &TrustedNamespaces::default(),
            &store.snapshot(),
            &caps,
            None,
        );
        let targets = [
            Reference::pod("shop", "db-0"),
            Reference::pod("shop", "web-0"),
        ];
        let targets: Vec<&Reference> = targets.iter().collect();
        let own = reserved.of_binding(&targets, 4_000_000_000).unwrap();
        reserved.of_node("a1", Some(own))
    };
    assert_eq!(before_first(), 1_000_000, "it is older");
    store.apply(policy("second", "10G"));
    assert_eq!(before_first(), 0, "it has grown");
    store.apply(policy("second", "1M"));
    assert_eq!(before_first(), 0);
    // Another process knows the ages, and from the statuses which bindings lack bandwidth.
    store.apply(policy("second", "10G"));
    let fresh = |lacking: &[&str]| {
        let reservations = Reservations::default();
        reservations.set_lacking(lacking.iter().map(|b| key("shop", b)).collect());
        let trusted = TrustedNamespaces::default();
        reservations.at(&trusted, &store.snapshot(), &caps, None)
    };
    let offers = |view: &ReservedView| view.first_offers("a1", 2, 2).join(" ");
    assert_eq!(offers(&fresh(&[])), "shop/second shop/first");
    let snapshot = store.snapshot();
    let second = snapshot.offers().find(|o| &*o.offer.name == "second");
    let bindings = desired_bindings(second.unwrap(), 1);
    let names: Vec<&str> = bindings.keys().map(String::as_str).collect();
    assert_eq!(offers(&fresh(&names)), "shop/first shop/second");
    store.apply(policy("second", "1M"));
    assert_eq!(before_first(), 0);
    // The first moves, and comes after those that were there.
    store.apply(tenant("web-0", 9, "web", "a2"));
    assert_eq!(
        reservations
            .at(
                &TrustedNamespaces::default(),
                &store.snapshot(),
                &caps,
                None
            )
            .of_node("b1", Some(1)),
        1_000_000
    );
}
