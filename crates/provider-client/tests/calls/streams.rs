//! Costs that providers send before a pod asks.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tautline_core::{
    Index,
    index::{Kind, Object},
    model::{Node, NodeConstraints, Pod},
    planning::RuleOutcome,
};
use tautline_provider_client::{
    ClientConfig, Metrics, PlanningQuestion, PlanningRound, ProviderClient,
};
use tautline_sdk::{
    CostAnswer, CostChanges, CostRequest, InFlightPod, ProviderError, RuleProvider, testkit,
};
use tokio::net::{TcpListener, TcpStream};

use crate::{cluster_index, code, question};

const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// Each node costs what was set, else 1, and 10 more for each pod there; refuses the rule while told so.
#[derive(Clone, Default)]
struct Ahead(Arc<State>);

#[derive(Default)]
struct State {
    costs: Mutex<BTreeMap<String, i64>>,
    pods: Mutex<BTreeMap<String, String>>,
    refuses: Mutex<bool>,
    per_pod: Mutex<bool>,
    /// The number of refused streams while another replica leads; `None` while this one leads.
    refused: Mutex<Option<u32>>,
    /// The number of questions of one pod.
    calls: Mutex<u32>,
    changes: CostChanges,
}

impl Ahead {
    fn set(&self, node: &str, cost: i64) {
        self.0.costs.lock().unwrap().insert(node.to_owned(), cost);
        self.0.changes.changed(node);
    }

    fn calls(&self) -> u32 {
        *self.0.calls.lock().unwrap()
    }
}

impl RuleProvider for Ahead {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        if !request.source.name.is_empty() {
            *self.0.calls.lock().unwrap() += 1;
        }
        if *self.0.refuses.lock().unwrap() {
            return Err(ProviderError::BadRule("write it down".into()));
        }
        let (costs, pods) = (self.0.costs.lock().unwrap(), self.0.pods.lock().unwrap());
        let sent = request.in_flight.iter().map(|pod| &pod.node);
        let on: Vec<&String> = pods.values().chain(sent).collect();
        let mut answer = CostAnswer::default();
        answer.per_pod = *self.0.per_pod.lock().unwrap();
        for node in &request.eligible_nodes {
            let pods = on.iter().filter(|on| **on == node).count();
            let cost = costs.get(node).copied().unwrap_or(1);
            answer.usable(node, cost + 10 * i64::try_from(pods).unwrap(), "");
        }
        Ok(answer)
    }

    fn changes(&self) -> Option<&CostChanges> {
        match &mut *self.0.refused.lock().unwrap() {
            Some(refused) => {
                *refused += 1;
                None
            }
            None => Some(&self.0.changes),
        }
    }

    fn placed(&self, pod: InFlightPod) {
        let (uid, node) = (pod.workload.uid, pod.node);
        self.0.pods.lock().unwrap().insert(uid, node.clone());
        self.0.changes.changed(&node);
    }

    fn ended(&self, uid: &str) {
        if let Some(node) = self.0.pods.lock().unwrap().remove(uid) {
            self.0.changes.changed(&node);
        }
    }
}

fn providers() -> ProviderClient {
    let config = ClientConfig {
        streams: true,
        ..ClientConfig::single_tenant()
    };
    ProviderClient::new(config, Metrics::default()).unwrap()
}

fn index_of(port: u16) -> Index {
    let mut index = cluster_index(&[("127.0.0.1", port)]);
    NODES.iter().for_each(|name| add_node(&mut index, name));
    index
}

fn add_node(index: &mut Index, name: &str) {
    index.apply(Object::Node(Node {
        name: name.into(),
        ..Node::default()
    }));
}

async fn plan_of(
    providers: &ProviderClient,
    index: &Index,
    nodes: &[&str],
    change: impl FnOnce(&mut PlanningQuestion),
) -> PlanningRound {
    let mut question = question(nodes);
    question.scheduler_waits = true;
    change(&mut question);
    providers.plan_pod(&index.snapshot(), question).await
}

async fn plan(providers: &ProviderClient, index: &Index) -> PlanningRound {
    plan_of(providers, index, &NODES, |_| {}).await
}

/// Plans until a condition holds, at most some seconds.
async fn until(
    providers: &ProviderClient,
    index: &Index,
    holds: impl Fn(&PlanningRound) -> bool,
) -> PlanningRound {
    let begun = Instant::now();
    loop {
        let round = plan(providers, index).await;
        if holds(&round) {
            return round;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{round:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn is_streamed(round: &PlanningRound) -> bool {
    round.rules[0].streamed.is_some()
}

fn costs(round: &PlanningRound) -> Vec<Option<i64>> {
    match &round.rules[0].outcome {
        RuleOutcome::Costs(costs) => (0..round.nodes.len()).map(|at| costs.get(at)).collect(),
        outcome => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn costs_are_there_before_the_next_pod_asks() {
    let provider = Ahead::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    // It waits for costs on their way while this machine is busy.
    let config = ClientConfig {
        streams: true,
        deadline: Duration::from_secs(60),
        ..ClientConfig::single_tenant()
    };
    let providers = ProviderClient::new(config, Metrics::default()).unwrap();
    let mut index = index_of(running.address.port());
    let first = plan(&providers, &index).await;
    assert_eq!(costs(&first), [Some(1); 3]);
    assert!(!is_streamed(&first));
    let round = until(&providers, &index, is_streamed).await;
    assert_eq!(costs(&round), [Some(1); 3]);
    let calls = provider.calls();
    provider.set("n2", 7);
    let is_news = |round: &PlanningRound| costs(round)[1] == Some(7);
    until(&providers, &index, is_news).await;
    assert_eq!(provider.calls(), calls);
    // Whatever nodes are asked about, in any order.
    let some = plan_of(&providers, &index, &["n3", "n2"], |_| {}).await;
    assert_eq!(costs(&some), [Some(1), Some(7)]);
    // A node that comes or goes changes the answer at once.
    add_node(&mut index, "n4");
    let with_new = plan_of(&providers, &index, &["n4", "n2"], |_| {}).await;
    assert_eq!(costs(&with_new), [Some(1), Some(7)]);
    assert!(is_streamed(&with_new));
    assert_eq!(provider.calls(), calls);
    index.delete(Kind::Node, "n4");
    let unknown = plan_of(&providers, &index, &["n4", "n2"], |_| {}).await;
    assert!(!is_streamed(&unknown));
}

#[tokio::test]
async fn pods_with_something_of_their_own_are_asked_for() {
    let provider = Ahead::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let (providers, mut index) = (providers(), index_of(running.address.port()));
    until(&providers, &index, is_streamed).await;
    let claims = |q: &mut PlanningQuestion| q.resource_claims.push("claim".into());
    let others = |q: &mut PlanningQuestion| q.scheduler_waits = false;
    assert!(!is_streamed(
        &plan_of(&providers, &index, &NODES, claims).await
    ));
    assert!(!is_streamed(
        &plan_of(&providers, &index, &NODES, others).await
    ));
    index.apply(Object::Pod(pod("pod", Some("n1"))));
    assert!(!is_streamed(&plan(&providers, &index).await));
    index.delete(Kind::Pod, "ns/pod");
    assert!(is_streamed(&plan(&providers, &index).await));
    *provider.0.per_pod.lock().unwrap() = true;
    provider.0.changes.changed_all();
    until(&providers, &index, |round| !is_streamed(round)).await;
}

#[tokio::test]
async fn a_question_fails_as_a_call_does() {
    let provider = Ahead::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let (providers, index) = (providers(), index_of(running.address.port()));
    until(&providers, &index, is_streamed).await;
    *provider.0.refuses.lock().unwrap() = true;
    provider.0.changes.changed_all();
    let round = until(&providers, &index, |round| code(round) != "OK").await;
    assert_eq!(code(&round), "ProviderFailed");
    let error = round.rules[0].error.clone().unwrap();
    assert!(error.contains("write it down"), "{error}");
    *provider.0.refuses.lock().unwrap() = false;
    until(&providers, &index, is_streamed).await;
}

fn pod(name: &str, node: Option<&str>) -> Pod {
    Pod {
        namespace: "ns".into(),
        name: name.into(),
        uid: name.into(),
        node: node.map(Into::into),
        placement: node.is_none().then(|| Box::new(NodeConstraints::default())),
        ..Pod::default()
    }
}

/// Filter's answer for a pod, and what providers are told.
fn begin(providers: &ProviderClient, index: &mut Index, name: &str, node: &str) {
    let counted_by = vec!["ns/p".into()];
    assert!(index.begin_flight(Instant::now(), pod(name, None), Some(node), counted_by));
    follow(providers, index);
}

fn follow(providers: &ProviderClient, index: &mut Index) {
    let snapshot = index.snapshot();
    providers.follow_flights(&snapshot, || index.take_flight_events());
}

#[tokio::test]
async fn each_pod_is_planned_by_all_placements_before_it() {
    let provider = Ahead::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let (providers, mut index) = (providers(), index_of(running.address.port()));
    until(&providers, &index, is_streamed).await;
    for turn in 1..100_i64 {
        let node = NODES[usize::try_from(turn).unwrap() % 3];
        begin(&providers, &mut index, &format!("p{turn}"), node);
        let round = plan(&providers, &index).await;
        let sum: i64 = costs(&round).into_iter().flatten().sum();
        assert_eq!(sum, 3 + 10 * turn, "{turn}: {round:?}");
        assert!(is_streamed(&round));
    }
    // An attempt that fails, and a pod that is bound elsewhere: the next plan knows.
    index.begin_attempt(Instant::now(), Duration::ZERO, "ns/p1");
    index.begin_attempt(Instant::now(), Duration::ZERO, "ns/p2");
    follow(&providers, &mut index);
    let round = plan(&providers, &index).await;
    let sum: i64 = costs(&round).into_iter().flatten().sum();
    assert_eq!(sum, 3 + 10 * 97);
    // The pod itself may hold a reservation.
    let own = |q: &mut PlanningQuestion| q.subject.uid = "p1".into();
    assert!(!is_streamed(
        &plan_of(&providers, &index, &NODES, own).await
    ));
}

#[tokio::test]
async fn calls_replace_a_broken_stream_until_another_one_is_there() {
    let provider = Ahead::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let (providers, mut index) = (providers(), index_of(running.address.port()));
    until(&providers, &index, is_streamed).await;
    begin(&providers, &mut index, "a", "n1");
    running.stop().await;
    // Another process at another address: it knows nothing.
    let fresh = Ahead::default();
    let running = testkit::start(fresh.clone()).await.unwrap();
    let mut moved = index_of(running.address.port());
    moved.begin_flight(
        Instant::now(),
        pod("a", None),
        Some("n1"),
        vec!["ns/p".into()],
    );
    let expected = [Some(11), Some(1), Some(1)];
    // The first calls name the pod, and so does the next stream.
    let begun = Instant::now();
    let mut was_streamed = false;
    while !was_streamed && begun.elapsed() < Duration::from_secs(20) {
        let round = plan(&providers, &moved).await;
        assert_eq!(costs(&round), expected, "{round:?}");
        was_streamed = is_streamed(&round);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(was_streamed);
}

#[tokio::test]
async fn a_stream_is_back_soon_after_a_replica_leads_again() {
    let provider = Ahead::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let (providers, index) = (providers(), index_of(running.address.port()));
    until(&providers, &index, is_streamed).await;
    let refused = &provider.0.refused;
    *refused.lock().unwrap() = Some(0);
    provider.set("n1", 2);
    // The open stream ends, and the next one is refused.
    until(&providers, &index, |_| *refused.lock().unwrap() >= Some(2)).await;
    *refused.lock().unwrap() = None;
    until(&providers, &index, is_streamed).await;
}

/// A load balancer: each connection to its port goes to the next replica.
async fn balance(replicas: Vec<SocketAddr>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        for replica in replicas.into_iter().cycle() {
            let (mut from, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut to = TcpStream::connect(replica).await.unwrap();
                _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_stream_reaches_the_leader_behind_one_address() {
    let (follower, leader) = (Ahead::default(), Ahead::default());
    *follower.0.refused.lock().unwrap() = Some(0);
    let follows = testkit::start(follower.clone()).await.unwrap();
    let leads = testkit::start(leader).await.unwrap();
    // The first connection is that of calls.
    let replicas = vec![follows.address, follows.address, leads.address];
    let (providers, index) = (providers(), index_of(balance(replicas).await));
    until(&providers, &index, is_streamed).await;
    assert_eq!(*follower.0.refused.lock().unwrap(), Some(1));
}

#[tokio::test]
async fn a_deleted_service_leaves_no_pods_behind() {
    let running = testkit::start(Ahead::default()).await.unwrap();
    let (providers, mut index) = (providers(), index_of(running.address.port()));
    begin(&providers, &mut index, "a", "n1");
    let service = (**index.snapshot().service("ns", "p").unwrap()).clone();
    index.delete(Kind::Service, "ns/p");
    index.begin_attempt(Instant::now(), Duration::ZERO, "ns/a");
    follow(&providers, &mut index);
    index.apply(Object::Service(service));
    assert_eq!(costs(&plan(&providers, &index).await), [Some(1); 3]);
}

#[tokio::test]
async fn a_provider_without_the_stream_is_called_for_each_pod() {
    let provider = crate::Counting::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let (providers, index) = (providers(), index_of(running.address.port()));
    for calls in 1..6 {
        assert!(!is_streamed(&plan(&providers, &index).await));
        assert_eq!(provider.calls(), calls);
    }
}
