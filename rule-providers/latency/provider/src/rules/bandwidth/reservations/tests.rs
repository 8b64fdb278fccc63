use std::time::Duration;

use proptest::prelude::*;
use tautline_core::{
    index::{Kind, Object},
    model::{self, TargetKind},
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
    let now = || reservations.at(&store.snapshot(), &caps, None);
    for (name, zone) in [("a1", "za"), ("a2", "za"), ("b1", "zb"), ("b2", "zb")] {
        store.apply(node(name, zone));
    }
    store.apply(offer("fast", ["web", "db"]));
    store.apply(pod("web-0", "web", Some("a2")));
    store.apply(pod("web-1", "web", Some("a1")));
    store.apply(pod("db-0", "db", Some("b1")));
    assert_eq!(now().of_node("b1"), 0, "no policy yet");
    store.apply(policy("fast", "1G"));
    let reserved = now();
    assert_eq!(reserved.of_node("b1"), 2_000_000_000);
    assert_eq!(reserved.of_node("a1"), 1_000_000_000);
    assert_eq!(reserved.of_row(ZONES), 1_000_000_000);
    assert_eq!(
        reserved.of_row(("a1", "zb")),
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
    assert_eq!(found.pairs, [("a1".into(), "b1".into())]);
    assert_eq!(reserved.of_binding(&targets, 1), None);
    assert!(Arc::ptr_eq(&now(), &reserved), "nothing changed");

    store.apply(pod("web-0", "web", Some("b1")));
    assert_eq!(
        now().of_row(ZONES),
        0,
        "on the same node nothing is reserved"
    );
    store.apply(policy("fast", "2G"));
    assert_eq!(now().of_node("b1"), 2_000_000_000);
    store.apply(policy("fast", "lots"));
    assert_eq!(now().of_node("b1"), 0, "no number, nothing reserved");
    store.apply(policy("fast", "3G"));
    store.delete(Kind::Pod, "shop/web-1");
    assert_eq!(now().of_node("a1"), 0);
    store.delete(Kind::Offer, "shop/fast");
    assert_eq!(now().of_node("b1"), 0);
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
            let (old, fresh) = (reservations.at(&snapshot, &caps, None), Reservations::default().at(&snapshot, &caps, None));
            prop_assert_eq!(&old.totals.by_node, &fresh.totals.by_node);
            prop_assert_eq!(&old.by_row, &fresh.by_row);
            // Each pair counts at both of its ends.
            let found: u64 = old.totals.all.iter().map(|h| h.bits * h.pairs.len() as u64).sum();
            prop_assert_eq!(old.totals.by_node.values().sum::<u64>(), 2 * found);
        }
    }
}
