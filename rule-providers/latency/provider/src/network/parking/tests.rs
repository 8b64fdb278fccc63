use tautline_core::{index::Object, model};
use tautline_proto::latency::Hello;
use tautline_runtime::cluster_store::ClusterStore;

use super::*;
use crate::Settings;

/// A network that keeps one stream, and agents on these nodes that have their
/// targets.
fn with(names: &[&str]) -> (Network, Vec<Seat>) {
    let feed = ClusterStore::default();
    let settings = Settings {
        streams: 1,
        ..Settings::default()
    };
    for name in names {
        feed.apply(Object::Node(model::Node {
            name: (*name).into(),
            uid: format!("uid-{name}").into(),
            ..model::Node::default()
        }));
    }
    let network = Network::new(feed, settings);
    let seats = names.iter().map(|name| seat(&network, name, 0)).collect();
    (network, seats)
}

fn seat(network: &Network, node: &str, parked: u64) -> Seat {
    let hello = Hello {
        node: node.into(),
        boot_id: "boot".into(),
        address: "127.0.0.1:9".into(),
        parks: true,
        parked,
        ..Hello::default()
    };
    let mut seat = network.seat(&hello).unwrap();
    seat.list.mark_unchanged();
    seat.measured = true;
    seat
}

fn probe(id: u64) -> Order {
    Order::Probe {
        id,
        targets: Vec::new(),
        samples: 1,
        within: Duration::from_secs(2),
    }
}

fn has_agent(network: &Network, id: Id) -> bool {
    let ledger = network.0.ledger.lock();
    ledger
        .get(id)
        .is_some_and(crate::ledger::Instance::has_agent)
}

#[test]
fn only_above_the_bound_and_only_those_of_whom_nothing_is_wanted() {
    let (network, mut seats) = with(&["a", "b", "c"]);
    let [a, b, c] = &mut seats[..] else { panic!() };
    b.parks = false;
    assert!(network.park(b).is_none(), "an older agent");
    b.parks = true;
    network.demand(
        crate::demand::Asker::TRUSTED,
        "b",
        "c",
        Duration::from_secs(9),
    );
    network.assign(0);
    assert!(network.park(b).is_none(), "its list is new");
    b.list.mark_unchanged();
    assert!(network.park(b).is_none(), "a rule names it");
    let waiting = network.order(a.id, probe).unwrap();
    assert!(network.park(a).is_none(), "an order waits for it");
    a.orders.try_recv().unwrap();
    drop(waiting);
    a.list.mark_unchanged();
    a.measured = false;
    let park = network.park(a).unwrap();
    assert_eq!(park.seconds, 5, "it has measured nothing yet");
    assert!(network.park(a).is_none(), "once");
    assert_eq!(network.agents(), 3);
    assert!(has_agent(&network, a.id));
    let metrics = &network.0.metrics;
    assert_eq!((metrics.agents.get(), metrics.parked.get()), (3, 1));

    let back = seat(&network, "a", park.key);
    assert_eq!(back.stays, Duration::ZERO);
    assert_eq!(network.park(&back).unwrap().seconds, 30);
    network.unseat(&[c.id, a.id]);
    assert!(network.park(b).is_none(), "it is the last");
    assert_eq!((network.agents(), metrics.parked.get()), (1, 0));
}

#[test]
fn a_wake_is_sent_thrice_and_who_does_not_come_is_deaf_until_it_does() {
    let (network, seats) = with(&["a", "b"]);
    let keys = Keys::random().unwrap();
    let a = &seats[0];
    let park = network.park(a).unwrap();
    let now = network.now();
    assert!(network.due(&keys, now).0.is_empty());
    let waiting = network.order(a.id, probe).unwrap();
    let since = network.now();
    let sent = |after: u64| {
        let (wakes, next) = network.due(&keys, since + Duration::from_millis(after));
        assert!(next <= LOOK);
        wakes.len()
    };
    let sent: Vec<usize> = [0, 100, 200, 900, 1_000, 2_000].map(sent).to_vec();
    assert_eq!(sent, [1, 0, 1, 0, 1, 0]);
    assert!(has_agent(&network, a.id));
    network.due(&keys, since + DEAF);
    assert!(!has_agent(&network, a.id), "others measure instead");
    assert!(network.order(a.id, probe).is_none());
    let metrics = &network.0.metrics;
    assert_eq!((metrics.wakes.get(), metrics.unanswered.get()), (1, 1));
    drop(waiting);

    let mut back = seat(&network, "a", park.key);
    assert!(has_agent(&network, a.id));
    assert!(back.orders.try_recv().is_err(), "its time is over");
    assert_eq!(back.stays, STAYS);
}

#[test]
fn an_order_waits_for_the_agent_and_another_process_gets_none() {
    for (comes_back, orders) in [(true, 1), (false, 0)] {
        let (network, seats) = with(&["a", "b"]);
        let park = network.park(&seats[0]).unwrap();
        let _waiting = network.order(seats[0].id, probe).unwrap();
        let key = if comes_back { park.key } else { 0 };
        let mut back = seat(&network, "a", key);
        let within = std::iter::from_fn(|| match *back.orders.try_recv().ok()? {
            Order::Probe { within, .. } => Some(within),
            Order::Transfer { .. } => None,
        });
        let within: Vec<Duration> = within.collect();
        assert_eq!(within.len(), orders);
        assert!(
            within.iter().all(|w| *w < Duration::from_secs(2)),
            "{within:?}"
        );
        assert_eq!(network.0.metrics.parked.get(), 0);
    }
}

#[test]
fn who_comes_back_has_not_begun_anew_and_another_process_has() {
    let (network, seats) = with(&["a", "b"]);
    let since = || {
        let ledger = network.0.ledger.lock();
        ledger.get(seats[0].id).unwrap().since()
    };
    let began = since();
    let park = network.park(&seats[0]).unwrap();
    let back = seat(&network, "a", park.key);
    assert_eq!(since(), began);
    network.park(&back).unwrap();
    let _other = seat(&network, "a", 0);
    assert!(since() > began);
}

#[test]
fn a_rule_that_names_an_agent_has_it_woken() {
    let (network, seats) = with(&["a", "b"]);
    let keys = Keys::random().unwrap();
    let park = network.park(&seats[0]).unwrap();
    network.demand(
        crate::demand::Asker::TRUSTED,
        "a",
        "b",
        Duration::from_secs(60),
    );
    network.assign(0);
    let (wakes, _) = network.due(&keys, network.now());
    assert_eq!(wakes[0].1, packet(&keys, "uid-a/boot", park.key));
    let back = seat(&network, "a", park.key);
    assert_eq!(back.stays, STAYS);
}

#[test]
fn who_misses_its_return_is_gone() {
    let (network, seats) = with(&["a", "b"]);
    let keys = Keys::random().unwrap();
    let park = network.park(&seats[0]).unwrap();
    let parked = network.now();
    network.due(&keys, parked + Duration::from_secs(65));
    assert_eq!(network.agents(), 2);
    network.due(&keys, parked + Duration::from_secs(67));
    assert_eq!(network.agents(), 1);
    assert!(!has_agent(&network, seats[0].id));
    // It is welcome all the same.
    let back = seat(&network, "a", park.key);
    assert_eq!((back.stays, network.agents()), (Duration::ZERO, 2));
}
