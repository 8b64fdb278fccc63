//! Calls to providers: balanced, bounded, tried again, cut short.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tautline_core::{
    Index, Snapshot,
    ask::Subject,
    index::Object,
    model::{EndpointSlice, Offer, Policy, Rule, Service, ServicePort, Target, TargetKind},
    nodes::NodeSet,
    planning::Outcome,
    selector::Selector,
};
use tautline_discovery::{Config, Discovery, Metrics, Question, Round};
use tautline_proto::ruleprovider as wire;
use tautline_sdk::{
    Allocator, AllocatorError, Changes, CostAnswer, CostQuestion, EvaluateQuestion, Evaluation,
    HeldQuestion, ProviderError, ReserveQuestion, Reserved, RuleProvider, testkit,
};

#[derive(Clone, Default)]
struct Counting {
    asked: Arc<Mutex<u32>>,
    /// The nodes of the last question.
    about: Arc<Mutex<Vec<String>>>,
    valid_for: Duration,
    delay: Duration,
    bytes: usize,
}

impl Counting {
    fn asked(&self) -> u32 {
        *self.asked.lock().unwrap()
    }
}

impl RuleProvider for Counting {
    async fn endpoint_cost(&self, ask: CostQuestion) -> Result<CostAnswer, ProviderError> {
        *self.asked.lock().unwrap() += 1;
        *self.about.lock().unwrap() = ask.eligible_nodes.clone();
        tokio::time::sleep(self.delay).await;
        let mut answer = CostAnswer::default().valid_for(self.valid_for);
        for node in ask.eligible_nodes {
            answer.usable(node, 1, "x".repeat(self.bytes));
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluateQuestion) -> Result<Evaluation, ProviderError> {
        *self.asked.lock().unwrap() += 1;
        Ok(Evaluation::default())
    }
}

/// A cluster with a provider of the rule `r` at these addresses of loopback.
fn cluster(addresses: &[(&str, u16)]) -> Snapshot {
    let mut index = Index::default();
    index.apply(Object::Service(Service {
        namespace: "ns".into(),
        name: "p".into(),
        rules: vec!["r".into()],
        has_selector: true,
        allocator: true,
        ..Service::default()
    }));
    for (i, (host, port)) in addresses.iter().enumerate() {
        index.apply(Object::EndpointSlice(EndpointSlice {
            namespace: "ns".into(),
            name: format!("p-{i}").as_str().into(),
            service: "p".into(),
            ports: vec![ServicePort {
                name: "ruleprovider".into(),
                port: *port,
            }],
            ready: vec![(*host).to_owned()],
            ..EndpointSlice::default()
        }));
    }
    let rule = Rule {
        name: "r".into(),
        weight: 1,
        ..Rule::default()
    };
    index.apply(Object::Policy(Policy {
        namespace: "ns".into(),
        name: "p".into(),
        rules: vec![rule],
    }));
    index.apply(Object::Offer(Offer {
        namespace: "ns".into(),
        name: "o".into(),
        uid: "".into(),
        targets: vec![Target {
            name: "default".into(),
            kind: TargetKind::Pod,
            api_version: "v1".into(),
            selector: Some(Selector::default()),
        }],
        policies: vec!["p".into()],
        period: Duration::from_secs(60),
        grace: Duration::ZERO,
        violation_policy: Default::default(),
        terminating: false,
        provider_unavailable: None,
    }));
    index.snapshot()
}

fn discovery() -> Discovery {
    Discovery::new(Config::default(), Metrics::default()).unwrap()
}

async fn ask(discovery: &Discovery, snapshot: &Snapshot) -> Round {
    ask_about(discovery, snapshot, &["n1", "n2"]).await
}

async fn ask_about(discovery: &Discovery, snapshot: &Snapshot, nodes: &[&str]) -> Round {
    let subject = Subject {
        namespace: "ns".into(),
        name: "pod".into(),
        ..Subject::default()
    };
    let nodes: NodeSet = nodes.iter().copied().collect();
    let question = Question {
        subject,
        nodes: Arc::new(nodes),
        ..Question::default()
    };
    discovery.round(snapshot, question).await
}

fn code(round: &Round) -> &'static str {
    match round.rules[0].outcome {
        Outcome::Costs(_) => "OK",
        Outcome::Unavailable { code, .. } => code,
    }
}

#[tokio::test]
async fn calls_are_balanced_over_ready_addresses() {
    let (a, b) = (Counting::default(), Counting::default());
    let (run_a, run_b) = (
        testkit::start(a.clone()).await.unwrap(),
        testkit::start(b.clone()).await.unwrap(),
    );
    let snapshot = cluster(&[
        ("127.0.0.1", run_a.address.port()),
        ("127.0.0.1", run_b.address.port()),
    ]);
    let discovery = discovery();
    for _ in 0..20 {
        assert_eq!(code(&ask(&discovery, &snapshot).await), "OK");
    }
    assert_eq!((a.asked(), b.asked()), (10, 10));
    // One dies: no call is lost, the other is asked instead.
    run_a.stop().await;
    for _ in 0..20 {
        assert_eq!(code(&ask(&discovery, &snapshot).await), "OK");
    }
    assert!(b.asked() >= 30);
}

/// A provider may judge by what it has seen of the same objects before.
#[tokio::test]
async fn the_same_objects_are_evaluated_by_the_same_replica() {
    let counts = [Counting::default(), Counting::default()];
    let a = testkit::start(counts[0].clone()).await.unwrap();
    let b = testkit::start(counts[1].clone()).await.unwrap();
    let snapshot = cluster(&[
        ("127.0.0.1", a.address.port()),
        ("127.0.0.1", b.address.port()),
    ]);
    let (discovery, service) = (discovery(), snapshot.service("ns", "p").unwrap());
    let mut by = [0, 0];
    for pod in 0..20 {
        let before = counts.each_ref().map(Counting::asked);
        let target = wire::Target {
            kind: "Pod".into(),
            name: format!("web-{pod}"),
            ..wire::Target::default()
        };
        for _ in 0..3 {
            let ask = wire::EvaluateRequest {
                targets: [("web".to_owned(), target.clone())].into(),
                ..wire::EvaluateRequest::default()
            };
            discovery.evaluate(&snapshot, service, ask).await.unwrap();
        }
        let asked = [0, 1].map(|i| counts[i].asked() - before[i]);
        assert!(asked == [3, 0] || asked == [0, 3], "{pod}: {asked:?}");
        by[usize::from(asked[1] > 0)] += 1;
    }
    assert!(by.iter().all(|n| *n > 0), "spread over both: {by:?}");
    // The one that has gone is replaced by the other.
    a.stop().await;
    let before = counts[1].asked();
    for pod in 0..20 {
        let target = wire::Target {
            name: format!("web-{pod}"),
            ..wire::Target::default()
        };
        let ask = wire::EvaluateRequest {
            targets: [("web".to_owned(), target)].into(),
            ..wire::EvaluateRequest::default()
        };
        discovery.evaluate(&snapshot, service, ask).await.unwrap();
    }
    assert_eq!(counts[1].asked() - before, 20);
    b.stop().await;
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_left_alone_and_probed() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let snapshot = cluster(&[("127.0.0.1", port)]);
    let discovery = discovery();
    let mut codes = Vec::new();
    for _ in 0..8 {
        codes.push(code(&ask(&discovery, &snapshot).await));
    }
    assert_eq!(codes[0], "ProviderFailed");
    assert_eq!(codes[7], "ProviderBreakerOpen", "{codes:?}");
    // It comes up: a probe finds it within the breaker's pauses.
    let config = tautline_sdk::Config {
        listen: ([127, 0, 0, 1], port).into(),
        ..testkit::loopback()
    };
    let _running = testkit::start_with(Counting::default(), config)
        .await
        .unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(15);
    while code(&ask(&discovery, &snapshot).await) != "OK" {
        assert!(
            std::time::Instant::now() < deadline,
            "the breaker never closed"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_slow_one_is_cut_off_and_a_huge_answer_refused() {
    let slow = Counting {
        delay: Duration::from_secs(60),
        ..Counting::default()
    };
    let running = testkit::start(slow).await.unwrap();
    let round = ask(
        &discovery(),
        &cluster(&[("127.0.0.1", running.address.port())]),
    )
    .await;
    assert_eq!(code(&round), "ProviderTimeout");
    assert_eq!(
        round.rules[0].error.as_deref(),
        Some("no answer within 500ms")
    );

    let huge = Counting {
        bytes: 5 << 20,
        ..Counting::default()
    };
    let running = testkit::start(huge).await.unwrap();
    let config = Config {
        deadline: Duration::from_secs(20),
        ..Config::default()
    };
    let discovery = Discovery::new(config, Metrics::default()).unwrap();
    let round = ask(
        &discovery,
        &cluster(&[("127.0.0.1", running.address.port())]),
    )
    .await;
    assert_eq!(
        code(&round),
        "ProviderBadAnswer",
        "{:?}",
        round.rules[0].error
    );
}

#[tokio::test]
async fn an_answer_is_used_again_for_as_long_as_it_is_valid() {
    let provider = Counting {
        valid_for: Duration::from_secs(40),
        ..Counting::default()
    };
    let running = testkit::start(provider.clone()).await.unwrap();
    let snapshot = cluster(&[("127.0.0.1", running.address.port())]);
    let discovery = discovery();
    let first = ask(&discovery, &snapshot).await;
    let second = ask(&discovery, &snapshot).await;
    assert_eq!(
        (first.rules[0].reused, second.rules[0].reused),
        (false, true)
    );
    assert_eq!(first.plan.verdicts, second.plan.verdicts);
    assert_eq!(provider.asked(), 1);
    // Of other nodes those are asked about that it does not know.
    let third = ask_about(&discovery, &snapshot, &["n3", "n2"]).await;
    assert!(!third.rules[0].reused);
    assert_eq!(third.plan.usable().count(), 2);
    assert_eq!(*provider.about.lock().unwrap(), ["n3"]);
    let all = ask_about(&discovery, &snapshot, &["n1", "n2", "n3"]).await;
    assert!(all.rules[0].reused);
    assert_eq!(all.plan.usable().count(), 3);
    assert_eq!(provider.asked(), 2);
}

/// Costs of nodes by name, with a record of their changes; clones are one.
#[derive(Clone, Default)]
struct Numbered(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    costs: BTreeMap<String, i64>,
    changes: Changes,
    /// How many lines each answer had.
    lines: Vec<usize>,
    nothing_new_for: Duration,
}

impl Numbered {
    fn set(&self, node: &str, cost: i64) {
        let mut record = self.0.lock().unwrap();
        record.costs.insert(node.to_owned(), cost);
        record.changes.node(node);
    }

    /// How many lines each answer had since this was asked last.
    fn lines(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap().lines)
    }
}

impl RuleProvider for Numbered {
    async fn endpoint_cost(&self, ask: CostQuestion) -> Result<CostAnswer, ProviderError> {
        let Record {
            costs,
            changes,
            lines,
            nothing_new_for,
        } = &mut *self.0.lock().unwrap();
        let mut answer = CostAnswer::default();
        answer.version = changes.version();
        let changed = changes.since(ask.known_version);
        if changed.is_some() {
            answer.changed_since = ask.known_version;
        }
        answer.valid_for = *nothing_new_for;
        let mut nodes = changed.unwrap_or_default();
        nodes.extend(ask.eligible_nodes.iter().map(String::as_str));
        lines.push(nodes.len());
        for node in nodes {
            answer.usable(node, costs.get(node).copied().unwrap_or(1), "");
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluateQuestion) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::default())
    }
}

fn costs(round: &Round) -> Vec<Option<i64>> {
    match &round.rules[0].outcome {
        Outcome::Costs(costs) => (0..round.nodes.len()).map(|at| costs.get(at)).collect(),
        unavailable => panic!("{unavailable:?}"),
    }
}

#[tokio::test]
async fn who_numbers_its_answers_is_asked_only_for_what_has_changed() {
    let provider = Numbered::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let snapshot = cluster(&[("127.0.0.1", running.address.port())]);
    let discovery = discovery();
    let ask = async |nodes: &[&str]| costs(&ask_about(&discovery, &snapshot, nodes).await);
    assert_eq!(ask(&["a", "b"]).await, [Some(1), Some(1)]);
    assert_eq!(provider.lines(), [2]);
    assert_eq!(ask(&["b", "a"]).await, [Some(1), Some(1)]);
    assert_eq!(provider.lines(), [0]);
    provider.set("b", 7);
    provider.set("elsewhere", 8);
    assert_eq!(ask(&["c", "b"]).await, [Some(1), Some(7)]);
    assert_eq!(provider.lines(), [3], "c, and the two that have changed");
    provider.set("c", -1);
    assert_eq!(ask(&["a", "b", "c"]).await, [Some(1), Some(7), Some(-1)]);
    assert_eq!(provider.lines(), [1]);
    // All may have changed: it is asked for changes, and then for all.
    provider.0.lock().unwrap().changes.all();
    assert_eq!(ask(&["b", "c"]).await, [Some(7), Some(-1)]);
    assert_eq!(provider.lines(), [0, 2]);
    assert_eq!(ask(&["a", "b"]).await, [Some(1), Some(7)]);
    assert_eq!(provider.lines(), [1]);
}

#[tokio::test]
async fn who_says_that_it_will_know_nothing_later_is_not_asked_until_then() {
    let provider = Numbered::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let snapshot = cluster(&[("127.0.0.1", running.address.port())]);
    let discovery = discovery();
    let ask = async |nodes: &[&str]| costs(&ask_about(&discovery, &snapshot, nodes).await);
    provider.0.lock().unwrap().nothing_new_for = Duration::from_secs(50);
    assert_eq!(ask(&["a", "b"]).await, [Some(1), Some(1)]);
    assert_eq!(ask(&["b"]).await, [Some(1)]);
    assert_eq!(provider.lines(), [2]);
    provider.0.lock().unwrap().nothing_new_for = Duration::ZERO;
    assert_eq!(ask(&["a", "c"]).await, [Some(1), Some(1)]);
    assert_eq!(
        provider.lines(),
        [1],
        "c is new, and what holds has changed"
    );
    provider.set("b", 7);
    assert_eq!(ask(&["b", "c"]).await, [Some(7), Some(1)]);
    assert_eq!(provider.lines(), [1]);
}

#[tokio::test]
async fn what_one_replica_has_numbered_another_is_not_asked_about() {
    let replicas = [Numbered::default(), Numbered::default()];
    let run_a = testkit::start(replicas[0].clone()).await.unwrap();
    let run_b = testkit::start(replicas[1].clone()).await.unwrap();
    let addresses = [&run_a, &run_b].map(|r| ("127.0.0.1", r.address.port()));
    let snapshot = cluster(&addresses);
    let discovery = discovery();
    let mut asked = [0, 0];
    for round in 0..8 {
        replicas.iter().for_each(|r| r.set("n1", round));
        let round_costs = costs(&ask(&discovery, &snapshot).await);
        assert_eq!(round_costs, [Some(round), Some(1)], "round {round}");
        let lines = replicas.each_ref().map(Numbered::lines);
        if round > 1 {
            let changes: Vec<&[usize]> = lines.iter().map(Vec::as_slice).collect();
            assert!(
                changes == [&[1][..], &[]] || changes == [&[], &[1][..]],
                "{lines:?}"
            );
            (0..2).for_each(|i| asked[i] += lines[i].len());
        }
    }
    assert!(asked == [6, 0] || asked == [0, 6], "{asked:?}");
    // The one that was asked goes: the other is asked for all.
    let gone = usize::from(asked[0] == 0);
    let mut running = [Some(run_a), Some(run_b)];
    running[gone].take().unwrap().stop().await;
    let left = &replicas[1 - gone];
    left.set("n2", 5);
    assert_eq!(costs(&ask(&discovery, &snapshot).await), [Some(7), Some(5)]);
    assert_eq!(left.lines().last(), Some(&2));
    left.set("n2", 6);
    assert_eq!(costs(&ask(&discovery, &snapshot).await), [Some(7), Some(6)]);
    assert_eq!(left.lines(), [1]);
}

#[tokio::test]
async fn without_a_ready_address_or_a_provider_the_code_says_which() {
    let discovery = discovery();
    let round = ask(&discovery, &cluster(&[])).await;
    assert_eq!(code(&round), "ProviderNotReady");
    assert_eq!(
        round.plan.usable().count(),
        2,
        "by default such a rule does not count"
    );
    let config = Config {
        namespaces: vec!["elsewhere".into()],
        ..Config::default()
    };
    let narrow = Discovery::new(config, Metrics::default()).unwrap();
    let round = ask(&narrow, &cluster(&[])).await;
    assert_eq!(code(&round), "NoProvider");
    assert!(
        round.rules[0]
            .error
            .as_deref()
            .unwrap()
            .contains("constraint-r: enabled")
    );
}

#[tokio::test]
async fn tls_with_certificates_of_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let server = rcgen::generate_simple_self_signed(["p.ns.svc".to_owned()]).unwrap();
    let client = rcgen::generate_simple_self_signed(["extender".to_owned()]).unwrap();
    for (name, text) in [
        ("server.crt", server.cert.pem()),
        ("server.key", server.signing_key.serialize_pem()),
        ("client.crt", client.cert.pem()),
        ("client.key", client.signing_key.serialize_pem()),
    ] {
        std::fs::write(at(name), text).unwrap();
    }
    let tls = tautline_sdk::TlsFiles {
        cert: at("server.crt"),
        key: at("server.key"),
        client_ca: Some(at("client.crt")),
        alpn: vec![],
    };
    let config = tautline_sdk::Config {
        tls: Some(tls),
        ..testkit::loopback()
    };
    let running = testkit::start_with(Counting::default(), config)
        .await
        .unwrap();
    let mut index = Index::default();
    index.apply(Object::Service(Service {
        namespace: "ns".into(),
        name: "p".into(),
        rules: vec!["r".into()],
        tls_required: true,
        has_selector: true,
        ..Service::default()
    }));
    let plain = cluster(&[("127.0.0.1", running.address.port())]);
    // The same cluster, with TLS required of the provider.
    for entry in plain.offers_in("ns") {
        index.apply(Object::Offer((*entry.offer).clone()));
    }
    index.apply(Object::Policy((**plain.policy("ns", "p").unwrap()).clone()));
    for slice in plain.slices_of("ns", "p") {
        index.apply(Object::EndpointSlice((**slice).clone()));
    }
    let snapshot = index.snapshot();
    let with = |identity: Option<(&str, &str)>, ca: &str| {
        let tls = tautline_runtime::tls::ClientFiles {
            ca: Some(at(ca)),
            identity: identity.map(|(c, k)| (at(c), at(k))),
        };
        let config = Config {
            tls,
            deadline: Duration::from_secs(5),
            ..Config::default()
        };
        Discovery::new(config, Metrics::default()).unwrap()
    };
    let known = with(Some(("client.crt", "client.key")), "server.crt");
    let round = ask(&known, &snapshot).await;
    assert_eq!(code(&round), "OK", "{:?}", round.rules[0].error);
    let nameless = with(None, "server.crt");
    assert_eq!(code(&ask(&nameless, &snapshot).await), "ProviderFailed");
    let distrustful = with(Some(("client.crt", "client.key")), "client.crt");
    assert_eq!(code(&ask(&distrustful, &snapshot).await), "ProviderFailed");
    assert_eq!(
        code(&ask(&known, &plain).await),
        "ProviderFailed",
        "plain text to a TLS port"
    );
}

/// Holds nothing at the moment, and says so.
struct NoLeader;

impl Allocator for NoLeader {
    async fn reserve(&self, _: ReserveQuestion) -> Result<Reserved, AllocatorError> {
        Err(AllocatorError::NotNow("no replica leads".into()))
    }
    async fn confirm(&self, _: HeldQuestion) -> Result<(), AllocatorError> {
        Ok(())
    }
    async fn release(&self, _: HeldQuestion) -> Result<(), AllocatorError> {
        Ok(())
    }
}

#[tokio::test]
async fn an_allocator_that_cannot_now_is_still_asked_for_costs() {
    let running = testkit::start_with_allocator(Counting::default(), NoLeader)
        .await
        .unwrap();
    let snapshot = cluster(&[("127.0.0.1", running.address.port())]);
    let discovery = discovery();
    let asked = Question {
        subject: Subject {
            namespace: "ns".into(),
            name: "pod".into(),
            uid: "u".into(),
            ..Subject::default()
        },
        ..Question::default()
    };
    for _ in 0..10 {
        let error = discovery
            .reserve(&snapshot, &asked, "n1")
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no replica leads"), "{error}");
    }
    assert_eq!(code(&ask(&discovery, &snapshot).await), "OK");
    running.stop().await;
}
