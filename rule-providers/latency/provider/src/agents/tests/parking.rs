//! Agents that are sent away, come back and are woken.

use tautline_proto::latency::Park;
use tokio::net::UdpSocket;

use super::*;

/// An agent that parks, its socket, and what it was told.
struct Parking<'a> {
    running: &'a Running,
    node: &'static str,
    socket: UdpSocket,
}

impl<'a> Parking<'a> {
    async fn new(running: &'a Running, node: &'static str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        Self {
            running,
            node,
            socket,
        }
    }

    async fn connect(&self, parked: u64) -> Agent {
        let address = self.socket.local_addr().unwrap();
        Agent::parking(self.running.endpoint(), self.node, address, parked).await
    }

    /// The key of the next wake.
    async fn woken(&self) -> u64 {
        let mut packet = [0; 100];
        let length = timeout(DEADLINE, self.socket.recv(&mut packet)).await;
        assert_eq!(length.expect("no wake").unwrap(), 56);
        assert_eq!(packet[..4], [b'T', b'L', 1, 3]);
        u64::from_be_bytes(packet[16..24].try_into().unwrap())
    }
}

/// The park that ends the stream, and how many lists of targets came before it.
async fn parked(agent: &mut Agent) -> (Park, usize) {
    let mut lists = 0;
    loop {
        match agent.hear().await.unwrap() {
            Told::Park(park) => return (park, lists),
            Told::Targets(_) => lists += 1,
            other => panic!("{other:?}"),
        }
    }
}

/// An agent on b that stays, and one on a that was sent away.
async fn one_away(running: &Running) -> (Agent, Parking<'_>, Park) {
    let mut b = running.agent("b").await;
    b.targets(|_| true).await;
    let a = Parking::new(running, "a").await;
    let mut agent = a.connect(0).await;
    agent.targets(|t| named(t) == ["b"]).await;
    agent.report(vec![pair("b", MILLI)]).await;
    let (park, _) = parked(&mut agent).await;
    (b, a, park)
}

#[tokio::test]
async fn below_the_bound_nobody_is_sent_away() {
    let running = keeping(2, trusting(), None).await;
    let (a, b) = (
        Parking::new(&running, "a").await,
        Parking::new(&running, "b").await,
    );
    let (mut a, mut b) = (a.connect(0).await, b.connect(0).await);
    a.targets(|t| named(t) == ["b"]).await;
    a.report(vec![pair("b", MILLI)]).await;
    until("a reading", || fresh(&running.network, "a", "b")).await;
    // Whoever is the third is sent away; the others hear of its node only.
    let c = Parking::new(&running, "c").await;
    let mut c = c.connect(0).await;
    c.report(vec![]).await;
    parked(&mut c).await;
    a.targets(|t| named(t) == ["b", "c"]).await;
    b.targets(|t| named(t) == ["a", "c"]).await;
    assert_eq!(running.network.0.metrics.parked.get(), 1);
}

#[tokio::test]
async fn one_that_is_away_counts_and_is_told_its_list_once() {
    let running = keeping(1, trusting(), None).await;
    let (_b, a, park) = one_away(&running).await;
    assert_eq!((park.seconds, park.key != 0), (30, true));
    let metrics = &running.network.0.metrics;
    assert_eq!((metrics.agents.get(), metrics.parked.get()), (2, 1));
    assert!(fresh(&running.network, "a", "b"));

    let mut again = a.connect(park.key).await;
    again.report(vec![pair("b", 2 * MILLI)]).await;
    let (next, lists) = parked(&mut again).await;
    assert_eq!(lists, 0, "it has that list");
    assert_ne!(next.key, park.key);
    let two = Duration::from_millis(2);
    assert!(matches!(running.network.reading("a", "b"), Reading::Fresh(f) if f.median == two));
    // Another key: another process, or another replica's park.
    let mut other = a.connect(park.key).await;
    other.report(vec![pair("b", MILLI)]).await;
    assert!(parked(&mut other).await.1 > 0);
    // New keys are for all: they are told when they come.
    Service::rekeyed(&running.network);
    let mut late = a.connect(0).await;
    late.targets(|_| true).await;
}

#[tokio::test]
async fn an_agent_may_leave_in_its_own_time_but_not_stay() {
    let running = keeping(0, trusting(), None).await;
    let a = Parking::new(&running, "a").await;
    let mut agent = a.connect(0).await;
    agent.report(vec![]).await;
    parked(&mut agent).await;
    assert_eq!(agent.end().await.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn a_probe_wakes_who_is_to_measure() {
    let running = keeping(1, trusting(), None).await;
    let (_b, a, park) = one_away(&running).await;
    let probe = running.network.probe("a", &["b"], 3, DEADLINE);
    let agent = async {
        assert_eq!(a.woken().await, park.key);
        let mut agent = a.connect(park.key).await;
        agent.report(vec![pair("b", MILLI)]).await;
        loop {
            if let Told::Probe(probe) = agent.hear().await.unwrap() {
                let pairs = vec![pair("b", 3 * MILLI)];
                let id = probe.id;
                agent.say(Says::Probed(Probed { id, pairs })).await;
                return agent;
            }
        }
    };
    let (found, _agent) = tokio::join!(probe, agent);
    let three = Duration::from_millis(3);
    assert!(
        matches!(&found[..], [(b, Reading::Fresh(f))] if b == "b" && f.median == three),
        "{found:?}"
    );
    let metrics = &running.network.0.metrics;
    assert_eq!((metrics.wakes.get(), metrics.unanswered.get()), (1, 0));
    assert_eq!(metrics.parked.get(), 0, "it stays");
}

#[tokio::test]
async fn a_rule_wakes_whom_it_names() {
    let running = keeping(1, trusting(), None).await;
    let (_b, a, park) = one_away(&running).await;
    running
        .network
        .demand(crate::demand::Asker::TRUSTED, "a", "b", DEADLINE);
    assert_eq!(a.woken().await, park.key);
    let mut agent = a.connect(park.key).await;
    let targets = agent.targets(|t| t.targets.iter().any(|t| t.demand)).await;
    assert_eq!(named(&targets), ["b"]);
}

#[tokio::test]
async fn who_does_not_come_costs_the_probe_and_no_more_than_its_time() {
    let running = keeping(1, trusting(), None).await;
    let (_b, a, park) = one_away(&running).await;
    // What it told before counts no more: times are kept in steps of 20 ms.
    let told = running.network.now() + Duration::from_millis(20);
    until("a later moment", || running.network.now() > told).await;
    let within = Duration::from_millis(300);
    let found = running.network.probe("a", &["b"], 3, within).await;
    assert!(found.is_empty(), "{found:?}");
    // Sent again, as the first may be lost.
    for _ in 0..3 {
        assert_eq!(a.woken().await, park.key);
    }
    let metrics = &running.network.0.metrics;
    until("deaf", || metrics.unanswered.get() == 1).await;
    assert_eq!(metrics.agents.get(), 2);
}

#[tokio::test]
async fn a_replica_that_knows_nothing_of_a_park_is_told_all() {
    let running = keeping(1, trusting(), None).await;
    let (_b, a, _) = one_away(&running).await;
    let mut again = a.connect(12_345).await;
    again.targets(|t| named(t) == ["b"]).await;
    again.report(vec![pair("b", MILLI)]).await;
    parked(&mut again).await;
    assert_eq!(running.network.0.metrics.agents.get(), 2);
}

#[tokio::test]
async fn last_words_of_one_that_is_away_are_heard() {
    let running = keeping(1, trusting(), None).await;
    let (_b, a, park) = one_away(&running).await;
    let Agent { send, mut stream } = a.connect(park.key).await;
    drop(send);
    while let Ok(Some(_)) = stream.message().await {}
    let metrics = &running.network.0.metrics;
    until("a has left", || metrics.agents.get() == 1).await;
}
