use tautline_core::{index::Object, model};
use tautline_proto::latency::{Hello, Pair, State};
use tautline_runtime::cluster_store::ClusterStore;

use super::*;
use crate::{
    Settings,
    network::{Seat, seat::MOST_ORDERS},
};

const SHORT: Duration = Duration::from_millis(60);

/// A network with an agent on each of these nodes.
fn with(names: &[&str]) -> (Network, Vec<Seat>) {
    let feed = ClusterStore::default();
    let network = Network::new(feed.clone(), Settings::default());
    let seat = |name: &&str| {
        feed.apply(Object::Node(model::Node {
            name: (*name).into(),
            uid: format!("uid-{name}").into(),
            ..model::Node::default()
        }));
        let hello = Hello {
            node: (*name).into(),
            boot_id: "boot".into(),
            address: "10.0.0.1:5310".into(),
            ..Hello::default()
        };
        network.seat(&hello).unwrap()
    };
    let seats = names.iter().map(seat).collect();
    (network, seats)
}

/// The targets of the next probe that an agent was asked for.
fn asked(seat: &mut Seat) -> Option<Vec<Id>> {
    match *seat.orders.try_recv().ok()? {
        Order::Probe { targets, .. } => Some(targets),
        Order::Transfer { .. } => None,
    }
}

#[tokio::test]
async fn agents_that_have_gone_are_not_measured() {
    let (network, mut seats) = with(&["a", "b", "c"]);
    let (c, b) = (seats.pop().unwrap(), seats[1].id);
    drop(c);
    network.probe("a", &["b", "c"], 1, SHORT).await;
    assert_eq!(asked(&mut seats[0]), Some(vec![b]));
    // Nobody is left to measure: nothing is sent.
    assert!(network.probe("a", &["c"], 1, SHORT).await.is_empty());
    assert_eq!(asked(&mut seats[0]), None);
}

#[tokio::test]
async fn what_nobody_answered_is_not_asked_again_until_something_comes() {
    let (network, mut seats) = with(&["a", "b"]);
    let b = seats[1].id;
    network.probe("a", &["b"], 1, SHORT).await;
    assert_eq!(asked(&mut seats[0]), Some(vec![b]));
    let at = network.now();
    network.probe("a", &["b"], 1, SHORT).await;
    network.probe("b", &["a"], 1, SHORT).await;
    assert_eq!((asked(&mut seats[0]), asked(&mut seats[1])), (None, None));
    let vain = |now| {
        let ledger = network.0.ledger.lock();
        let probing = &network.0.probing;
        probing.is_vain(&ledger, seats[0].id, b, now)
    };
    assert!(vain(at + UNANSWERED - SHORT) && !vain(at + UNANSWERED));
    let late = Pair {
        node: "b".into(),
        instance: "uid-b/boot".into(),
        state: State::Measured.into(),
        window_nanos: vec![9],
        p50_nanos: 9,
        p95_nanos: 9,
        samples: 1,
        ..Pair::default()
    };
    let refused = network
        .0
        .ledger
        .lock()
        .report(seats[0].id, &[late], network.now());
    assert_eq!((refused.len(), vain(network.now())), (0, false));
    network.probe("a", &["b"], 1, SHORT).await;
    assert_eq!(asked(&mut seats[0]), Some(vec![b]));
}

#[tokio::test]
async fn others_measure_only_for_a_peer_without_an_agent() {
    let (network, mut seats) = with(&["a", "b"]);
    let busy: Vec<_> = (0..MOST_ORDERS)
        .map(|_| network.order(seats[0].id, |id| transfer(id, seats[1].id)))
        .collect();
    assert!(busy.iter().all(Option::is_some));
    network.probe("a", &["b"], 1, SHORT).await;
    assert_eq!(asked(&mut seats[1]), None, "a is there, and busy");
    drop(busy);
    let a = seats.remove(0).id;
    network.probe("a", &["b"], 1, SHORT).await;
    assert_eq!(asked(&mut seats[0]), Some(vec![a]));
}

impl Network {
    /// Orders a probe of whoever; says whether it was answered.
    pub(crate) async fn order_probe(&self, of: &str, targets: Vec<Id>, within: Duration) -> bool {
        let of = self.0.ledger.lock().id(of);
        let order = |id| Order::Probe {
            id,
            targets,
            samples: 1,
            within,
        };
        match of.and_then(|of| self.order(of, order)) {
            Some(mut asked) => (&mut asked.answer).await.is_ok(),
            None => false,
        }
    }
}

fn transfer(id: u64, to: Id) -> Order {
    Order::Transfer {
        id,
        to,
        max_bytes: 1,
        within: SHORT,
    }
}

#[test]
fn transfers_are_seldom() {
    let (probing, second) = (Probing::default(), Duration::from_secs(1));
    probing.may_transfer("a", "b", Duration::ZERO).unwrap();
    let error = probing.may_transfer("c", "d", second * 9).unwrap_err();
    assert_eq!(error, "another transfer was within 10s");
    probing.may_transfer("c", "d", second * 10).unwrap();
    let error = probing.may_transfer("a", "e", second * 299).unwrap_err();
    assert_eq!(error, "a had a transfer within 300s");
    probing.may_transfer("a", "e", second * 300).unwrap();
}
