use tautline_core::{index::Object, model};
use tautline_proto::latency::{Pair, State};

use super::*;
use crate::{
    location::ZONE,
    measurement::Measurement,
    network::tests::{hello, network_of},
};

const PLACE: &str = "203.0.113.9:5432";

/// A network of nodes in zones, which may connect to the documentation's addresses.
fn network(nodes: &[(String, &str)]) -> Arc<Network> {
    let network = network_of(&[]);
    for (name, zone) in nodes {
        network.store.apply(Object::Node(model::Node {
            name: name.as_str().into(),
            uid: name.as_str().into(),
            labels: [(ZONE, *zone)].into_iter().collect(),
            ..model::Node::default()
        }));
    }
    let range = "203.0.113.0/24".parse().unwrap();
    network.allow_outside(AllowedAddresses::new(vec![range], None));
    network
}

/// Returns the targets outside the cluster that each agent has, by the agent's node.
async fn lists(
    network: &Network,
    sessions: &mut [crate::network::sessions::AgentSession],
) -> BTreeMap<String, Vec<(SocketAddr, Option<Duration>)>> {
    network.update_lists(0);
    let list = |session: &mut crate::network::sessions::AgentSession| {
        let list = session
            .targets
            .borrow_and_update()
            .clone()
            .unwrap_or_default();
        let outside = list.iter().filter(|t| t.outside_interval.is_some());
        let outside: Vec<_> = outside.map(|t| (t.address, t.outside_interval)).collect();
        let node = network.pairs.lock().get(session.id)?.node.to_string();
        (!outside.is_empty()).then_some((node, outside))
    };
    sessions.iter_mut().filter_map(list).collect()
}

#[tokio::test]
async fn nodes_of_all_zones_and_those_that_rules_name_visit_an_address() {
    let name = |n: usize| format!("n{n:02}");
    let nodes: Vec<_> = (0..60).map(|n| (name(n), ["a", "b", "c"][n % 3])).collect();
    let network = network(&nodes);
    let open = |(node, _): &(String, &str)| network.open_session(&hello(node)).unwrap();
    let mut sessions: Vec<_> = nodes.iter().map(open).collect();
    assert!(lists(&network, &mut sessions).await.is_empty());

    let reason = network.want_outside(Requester::TRUSTED, PLACE);
    assert_eq!(reason, Some(NoFigure::NotYet));
    let spread = lists(&network, &mut sessions).await;
    let every = |seconds| vec![(PLACE.parse().unwrap(), Some(Duration::from_secs(seconds)))];
    assert_eq!(spread.len(), SPREAD_NODES);
    assert!(spread.values().all(|list| *list == every(10)), "{spread:?}");
    let zones: BTreeSet<_> = spread
        .keys()
        .map(|n| n[1..].parse::<usize>().unwrap() % 3)
        .collect();
    assert_eq!(zones.len(), 3, "{spread:?}");

    // At most four connects a second from all nodes.
    for (node, _) in &nodes {
        network.demand(Requester::TRUSTED, node, PLACE, Duration::from_secs(60));
    }
    let all = lists(&network, &mut sessions).await;
    assert_eq!(all.len(), 60);
    assert!(all.values().all(|list| *list == every(15)), "{all:?}");
    assert_eq!(network.metrics.demanded_pairs.get(), 0);
}

#[tokio::test]
async fn ports_of_one_host_share_its_connects() {
    let nodes: Vec<_> = (0..60).map(|n| (format!("n{n:02}"), "a")).collect();
    let network = network(&nodes);
    let open = |(node, _): &(String, &str)| network.open_session(&hello(node)).unwrap();
    let mut sessions: Vec<_> = nodes.iter().map(open).collect();
    for place in [PLACE, "203.0.113.9:443"] {
        network.want_outside(Requester::TRUSTED, place);
        for (node, _) in &nodes {
            network.demand(Requester::TRUSTED, node, place, Duration::from_secs(60));
        }
    }
    let all = lists(&network, &mut sessions).await;
    let interval = Some(Duration::from_secs(30));
    let mut targets = all.values().flatten();
    assert!(targets.all(|(_, every)| *every == interval), "{all:?}");
}

/// A name and an address may be one server.
#[tokio::test]
async fn places_of_one_address_are_instances_of_their_own() {
    let network = network(&[("n0".to_owned(), "a")]);
    let address: SocketAddr = PLACE.parse().unwrap();
    let mut pairs = network.pairs.lock();
    for place in [PLACE, "db.example.com:5432"] {
        pairs.put_outside(place, address, network.now());
    }
    let name = |place: &str| pairs.get(pairs.id(place).unwrap()).unwrap().name.clone();
    assert_ne!(name(PLACE), name("db.example.com:5432"));
}

#[tokio::test]
async fn reports_of_an_address_are_measurements_and_another_address_drops_them() {
    let network = network(&[("n0".to_owned(), "a")]);
    let session = network.open_session(&hello("n0")).unwrap();
    network.want_outside(Requester::TRUSTED, PLACE);
    let report = || {
        let mut pairs = network.pairs.lock();
        let instance = pairs
            .get(pairs.id(PLACE).unwrap())
            .unwrap()
            .name
            .to_string();
        let pair = Pair {
            node: PLACE.to_owned(),
            instance,
            state: State::Measured.into(),
            window_nanos: vec![3_000_000],
            p50_nanos: 3_000_000,
            p95_nanos: 3_000_000,
            samples: 1,
            refresh_millis: 10_000,
            connect: true,
            ..Pair::default()
        };
        pairs.report(session.id, &[pair], network.now())
    };
    assert_eq!(report(), []);
    let measured =
        || matches!(network.measurement("n0", PLACE), Measurement::Fresh(s) if s.connect);
    assert!(measured());
    // Nodes come and go, and addresses stay.
    let gone = network.pairs.lock().retain_nodes(|node, _| node == "n0");
    assert_eq!(gone, []);
    assert!(measured());
    let probed = network
        .probe(PLACE, &["n0"], 1, Duration::from_secs(1))
        .await;
    assert!(probed.is_empty(), "many nodes would connect at once");
    let other = "203.0.113.10:5432".parse().unwrap();
    network
        .pairs
        .lock()
        .put_outside(PLACE, other, network.now());
    assert!(!measured());
}
