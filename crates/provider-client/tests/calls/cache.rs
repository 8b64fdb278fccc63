//! Cached answers: valid for a time, or updated by their changes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tautline_core::planning::RuleOutcome;
use tautline_provider_client::{PlanningQuestion, PlanningRound};
use tautline_sdk::{
    ChangeLog, CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
    testkit,
};

use crate::{Counting, cluster, plan, plan_on, providers, question};

#[tokio::test]
async fn cache_hits_while_an_answer_is_valid() {
    let provider = Counting {
        valid_for: Duration::from_secs(40),
        ..Counting::default()
    };
    let running = testkit::start(provider.clone()).await.unwrap();
    let snapshot = cluster(&[("127.0.0.1", running.address.port())]);
    let providers = providers();
    let first = plan(&providers, &snapshot).await;
    let second = plan(&providers, &snapshot).await;
    assert_eq!(
        (first.rules[0].reused, second.rules[0].reused),
        (false, true)
    );
    assert_eq!(first.plan.verdicts, second.plan.verdicts);
    assert_eq!(provider.calls(), 1);
    // Only unknown nodes are requested.
    let third = plan_on(&providers, &snapshot, &["n3", "n2"]).await;
    assert!(!third.rules[0].reused);
    assert_eq!(third.plan.usable().count(), 2);
    assert_eq!(*provider.about.lock().unwrap(), ["n3"]);
    let all = plan_on(&providers, &snapshot, &["n1", "n2", "n3"]).await;
    assert!(all.rules[0].reused);
    assert_eq!(all.plan.usable().count(), 3);
    assert_eq!(provider.calls(), 2);
}

#[tokio::test]
async fn cache_key_has_the_presence_of_claims_only() {
    let provider = Counting {
        valid_for: Duration::from_secs(40),
        ..Counting::default()
    };
    let running = testkit::start(provider.clone()).await.unwrap();
    let snapshot = cluster(&[("127.0.0.1", running.address.port())]);
    let providers = providers();
    for (claims, calls) in [(&[][..], 1), (&["a"], 2), (&["b", "c"], 2), (&[], 2)] {
        let question = PlanningQuestion {
            resource_claims: claims.iter().map(|name| (*name).to_owned()).collect(),
            ..question(&["n1", "n2"])
        };
        providers.plan_pod(&snapshot, question).await;
        assert_eq!(provider.calls(), calls, "{claims:?}");
    }
}

/// Costs of nodes by name, with a change log; clones share them.
#[derive(Clone, Default)]
struct Numbered(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    costs: BTreeMap<String, i64>,
    changes: ChangeLog,
    /// The number of lines of each answer.
    lines: Vec<usize>,
    nothing_new_for: Duration,
    /// Answers have no version.
    unnumbered: bool,
}

impl Numbered {
    fn set(&self, node: &str, cost: i64) {
        let mut record = self.0.lock().unwrap();
        record.costs.insert(node.to_owned(), cost);
        record.changes.record_node(node);
    }

    /// The number of lines of each answer since the last call of this.
    fn lines(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap().lines)
    }
}

impl RuleProvider for Numbered {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let Record {
            costs,
            changes,
            lines,
            nothing_new_for,
            unnumbered,
        } = &mut *self.0.lock().unwrap();
        let mut answer = CostAnswer::default();
        let known = if *unnumbered {
            0
        } else {
            request.known_version
        };
        answer.version = if *unnumbered { 0 } else { changes.version() };
        let changed = changes.since(known);
        if changed.is_some() {
            answer.changed_since = request.known_version;
        }
        answer.valid_for = *nothing_new_for;
        let mut nodes = changed.unwrap_or_default();
        nodes.extend(request.eligible_nodes.iter().map(String::as_str));
        lines.push(nodes.len());
        for node in nodes {
            answer.usable(node, costs.get(node).copied().unwrap_or(1), "");
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::default())
    }
}

fn costs(round: &PlanningRound) -> Vec<Option<i64>> {
    match &round.rules[0].outcome {
        RuleOutcome::Costs(costs) => (0..round.nodes.len()).map(|at| costs.get(at)).collect(),
        unavailable => panic!("{unavailable:?}"),
    }
}

#[tokio::test]
async fn versioned_provider_gets_requests_for_changes() {
    let provider = Numbered::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let snapshot = cluster(&[("127.0.0.1", running.address.port())]);
    let providers = providers();
    let get = async |nodes: &[&str]| costs(&plan_on(&providers, &snapshot, nodes).await);
    assert_eq!(get(&["a", "b"]).await, [Some(1), Some(1)]);
    assert_eq!(provider.lines(), [2]);
    assert_eq!(get(&["b", "a"]).await, [Some(1), Some(1)]);
    assert_eq!(provider.lines(), [0]);
    provider.set("b", 7);
    provider.set("elsewhere", 8);
    assert_eq!(get(&["c", "b"]).await, [Some(1), Some(7)]);
    assert_eq!(provider.lines(), [3], "c, and the two that have changed");
    provider.set("c", -1);
    assert_eq!(get(&["a", "b", "c"]).await, [Some(1), Some(7), Some(-1)]);
    assert_eq!(provider.lines(), [1]);
    // All may have changed: a request for changes, and one for all nodes.
    provider.0.lock().unwrap().changes.record_all();
    assert_eq!(get(&["b", "c"]).await, [Some(7), Some(-1)]);
    assert_eq!(provider.lines(), [0, 2]);
    assert_eq!(get(&["a", "b"]).await, [Some(1), Some(7)]);
    assert_eq!(provider.lines(), [1]);
}

#[tokio::test]
async fn cache_hits_versioned_lines_while_fresh() {
    let provider = Numbered::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let snapshot = cluster(&[("127.0.0.1", running.address.port())]);
    let providers = providers();
    let get = async |nodes: &[&str]| costs(&plan_on(&providers, &snapshot, nodes).await);
    provider.0.lock().unwrap().nothing_new_for = Duration::from_secs(50);
    assert_eq!(get(&["a", "b"]).await, [Some(1), Some(1)]);
    assert_eq!(get(&["b"]).await, [Some(1)]);
    assert_eq!(provider.lines(), [2]);
    provider.0.lock().unwrap().nothing_new_for = Duration::ZERO;
    assert_eq!(get(&["a", "c"]).await, [Some(1), Some(1)]);
    assert_eq!(
        provider.lines(),
        [1],
        "c is new, and what holds has changed"
    );
    provider.set("b", 7);
    assert_eq!(get(&["b", "c"]).await, [Some(7), Some(1)]);
    assert_eq!(provider.lines(), [1]);
}

#[tokio::test]
async fn versioned_requests_go_to_the_same_replica() {
    let replicas = [Numbered::default(), Numbered::default()];
    let run_a = testkit::start(replicas[0].clone()).await.unwrap();
    let run_b = testkit::start(replicas[1].clone()).await.unwrap();
    let addresses = [&run_a, &run_b].map(|r| ("127.0.0.1", r.address.port()));
    let snapshot = cluster(&addresses);
    let providers = providers();
    let mut lines_of = [0, 0];
    for round in 0..8 {
        replicas.iter().for_each(|r| r.set("n1", round));
        let round_costs = costs(&plan(&providers, &snapshot).await);
        assert_eq!(round_costs, [Some(round), Some(1)], "round {round}");
        let lines = replicas.each_ref().map(Numbered::lines);
        if round > 1 {
            let changes: Vec<&[usize]> = lines.iter().map(Vec::as_slice).collect();
            assert!(
                changes == [&[1][..], &[]] || changes == [&[], &[1][..]],
                "{lines:?}"
            );
            (0..2).for_each(|i| lines_of[i] += lines[i].len());
        }
    }
    assert!(lines_of == [6, 0] || lines_of == [0, 6], "{lines_of:?}");
    // The called replica goes: all nodes are requested from the other.
    let gone = usize::from(lines_of[0] == 0);
    let mut running = [Some(run_a), Some(run_b)];
    running[gone].take().unwrap().stop().await;
    let left = &replicas[1 - gone];
    left.set("n2", 5);
    assert_eq!(
        costs(&plan(&providers, &snapshot).await),
        [Some(7), Some(5)]
    );
    assert_eq!(left.lines().last(), Some(&2));
    left.set("n2", 6);
    assert_eq!(
        costs(&plan(&providers, &snapshot).await),
        [Some(7), Some(6)]
    );
    assert_eq!(left.lines(), [1]);
}

#[tokio::test]
async fn cache_drops_a_replica_without_versions() {
    let replicas = [Numbered::default(), Numbered::default()];
    let run_a = testkit::start(replicas[0].clone()).await.unwrap();
    let run_b = testkit::start(replicas[1].clone()).await.unwrap();
    let addresses = [&run_a, &run_b].map(|r| ("127.0.0.1", r.address.port()));
    let snapshot = cluster(&addresses);
    let providers = providers();
    plan(&providers, &snapshot).await;
    let at = replicas.iter().position(|r| !r.lines().is_empty()).unwrap();
    let (was, is) = (&replicas[at], &replicas[1 - at]);
    was.0.lock().unwrap().unnumbered = true;
    is.set("n2", 5);
    plan(&providers, &snapshot).await;
    assert_eq!(was.lines(), [0, 2], "what has changed, then all");
    // In turn, until one answers with a version.
    for _ in 0..2 {
        plan(&providers, &snapshot).await;
    }
    assert!(was.lines().len() < 2);
    for _ in 0..4 {
        assert_eq!(
            costs(&plan(&providers, &snapshot).await),
            [Some(1), Some(5)]
        );
    }
    assert_eq!(was.lines().len(), 0, "{:?}", is.lines());
}

/// Its answers are valid for 40 ms; records the pods of requests.
#[derive(Clone, Default)]
struct Noting(Arc<Mutex<Vec<String>>>);

impl RuleProvider for Noting {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let uid = request.workload.map_or_else(String::new, |w| w.uid);
        let who = [request.source.name, uid].concat();
        self.0.lock().unwrap().push(who);
        let mut answer = CostAnswer::default().valid_for(Duration::from_millis(40));
        for node in request.eligible_nodes {
            answer.usable(node, 1, "");
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::default())
    }
}

#[tokio::test]
async fn refresh_sends_no_pod_identity() {
    let provider = Noting::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let snapshot = cluster(&[("127.0.0.1", running.address.port())]);
    let providers = providers();
    // Pods with claims: many questions of one pod each.
    let with_claims = || PlanningQuestion {
        resource_claims: vec!["a".into()],
        ..question(&["n1", "n2"])
    };
    let notes = || provider.0.lock().unwrap().clone();
    while notes().len() < 5 {
        providers.plan_pod(&snapshot, with_claims()).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(notes(), ["pod"; 5]);
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let round = plan(&providers, &snapshot).await;
        assert_eq!(round.plan.usable().count(), 2);
        if notes().iter().filter(|who| who.is_empty()).count() > 4 {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "{:?}", notes());
        tokio::task::yield_now().await;
    }
}
