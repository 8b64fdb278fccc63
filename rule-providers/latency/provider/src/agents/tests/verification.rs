//! Questions that have agents measure before the answer.

use std::sync::atomic::{AtomicUsize, Ordering};

use tautline_proto::ruleprovider::{
    EndpointCostRequest, EvaluateRequest, PolicyRule, Target,
    rule_provider_client::RuleProviderClient,
};
use tokio::sync::Semaphore;

use super::*;

/// Callers that wait for as long as it takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn rule(limit: &str) -> Option<PolicyRule> {
    Some(PolicyRule {
        name: "latency".into(),
        request: "1ms".into(),
        limit: limit.into(),
    })
}

/// Agents on all nodes; a has measured b, and b has measured c and d, so that the
/// ways from a to c and d are predicted.
async fn predicted() -> (Running, Agent, [Agent; 3]) {
    let running = start(trusting(), None).await;
    let (a, b) = (running.agent("a").await, running.agent("b").await);
    // They must be there before figures about them count, and to be measured.
    let (c, d) = (running.agent("c").await, running.agent("d").await);
    until("four agents", || running.network.metrics.agents.get() == 4).await;
    a.report(vec![pair("b", MILLI)]).await;
    b.report(vec![pair("c", MILLI), pair("d", 2 * MILLI)]).await;
    until("estimates", || {
        let row = running.network.row("a");
        row.estimate("c").is_some() && row.estimate("d").is_some()
    })
    .await;
    (running, a, [b, c, d])
}

impl Running {
    /// The costs of the nodes b, c and d with a peer on a.
    async fn costs(&self, limit: &str, timeout: Duration) -> Vec<(i64, String)> {
        let mut client = RuleProviderClient::new(self.endpoint().connect().await.unwrap());
        let mut request = Request::new(EndpointCostRequest {
            rule: rule(limit),
            peer_nodes: vec!["a".into()],
            eligible_nodes: ["b", "c", "d"].map(str::to_owned).to_vec(),
            ..EndpointCostRequest::default()
        });
        request.set_timeout(timeout);
        let answer = client.endpoint_cost(request).await.unwrap().into_inner();
        let costs = answer.node_and_cost.into_iter();
        costs.map(|n| (n.cost, n.detail)).collect()
    }
}

/// Answers probes, once each may be, and counts them.
struct Answers {
    probes: Arc<AtomicUsize>,
    may: Arc<Semaphore>,
}

fn answer_probes(mut agent: Agent, micros: impl Fn(&str) -> u64 + Send + 'static) -> Answers {
    let (probes, may) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (count, wait) = (Arc::clone(&probes), Arc::clone(&may));
    tokio::spawn(async move {
        while let Ok(order) = agent.hear().await {
            let Told::Probe(probe) = order else { continue };
            count.fetch_add(1, Ordering::SeqCst);
            let targets = probe.targets.iter();
            let pairs = targets.map(|t| pair(&t.node, micros(&t.node) * 1_000));
            let probed = Probed {
                id: probe.id,
                pairs: pairs.collect(),
            };
            if let Ok(permit) = wait.acquire().await {
                permit.forget();
            }
            agent.say(Says::Probed(probed)).await;
        }
    });
    Answers { probes, may }
}

#[tokio::test]
async fn the_best_are_verified_once_for_questions_at_the_same_time_and_later() {
    let (running, a, _others) = predicted().await;
    let answers = answer_probes(a, |node| if node == "c" { 700 } else { 5_000 });
    let questions = async {
        tokio::join!(
            running.costs("4ms", PATIENCE),
            running.costs("4ms", PATIENCE)
        )
    };
    let release = async {
        until("a probe", || answers.probes.load(Ordering::SeqCst) > 0).await;
        // Whatever the second question does, it does meanwhile.
        answers.may.add_permits(8);
    };
    let ((first, second), ()) = tokio::join!(questions, release);
    let verified = |costs: &[(i64, String)]| {
        assert_eq!(costs[0], (1_000, "1ms to a, measured".to_owned()));
        assert_eq!((costs[1].0, costs[2].0), (700, -1), "{costs:?}");
    };
    verified(&first);
    verified(&second);
    assert!(
        first[1].1 == "700us to a, verified" || second[1].1 == "700us to a, verified",
        "{first:?} {second:?}"
    );
    let before = answers.probes.load(Ordering::SeqCst);
    let third = running.costs("4ms", PATIENCE).await;
    assert_eq!(third[1].1, "700us to a, measured");
    assert_eq!(third[2].1, "5ms to a > 4ms, measured");
    assert_eq!(
        answers.probes.load(Ordering::SeqCst),
        before,
        "known by now"
    );
}

#[tokio::test]
async fn a_silent_agent_costs_the_verification_and_not_the_answer() {
    let (running, _a, _others) = predicted().await;
    let costs = running.costs("", Duration::from_secs(3)).await;
    assert_eq!(costs[0].0, 1_000);
    for (cost, detail) in &costs[1..] {
        assert!(*cost > 0, "{costs:?}");
        assert!(
            detail.contains("to a, estimated (") && detail.ends_with(", not verified"),
            "{costs:?}"
        );
    }
}

#[tokio::test]
async fn a_pair_without_a_figure_is_measured_before_it_is_judged() {
    let (running, a, _others) = predicted().await;
    let answers = answer_probes(a, |_| 3_000);
    answers.may.add_permits(8);
    for (name, node) in [("x", "a"), ("y", "c")] {
        running.store.apply(Object::Pod(model::Pod {
            namespace: "shop".into(),
            name: name.into(),
            node: Some(node.into()),
            ..model::Pod::default()
        }));
    }
    let target = |name: &str| Target {
        namespace: "shop".into(),
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: name.into(),
        ..Target::default()
    };
    let mut request = Request::new(EvaluateRequest {
        targets: ["x", "y"].map(|n| (n.to_owned(), target(n))).into(),
        rule: rule("2ms"),
        ..EvaluateRequest::default()
    });
    request.set_timeout(PATIENCE);
    let mut client = RuleProviderClient::new(running.endpoint().connect().await.unwrap());
    let evaluation = client.evaluate(request).await.unwrap().into_inner();
    assert_eq!(
        evaluation.reason,
        "3ms > 2ms between a and c, measured, one window so far"
    );
    assert_eq!(evaluation.compliance, 2, "Limit, until three windows agree");
    assert_eq!(answers.probes.load(Ordering::SeqCst), 1);
}
