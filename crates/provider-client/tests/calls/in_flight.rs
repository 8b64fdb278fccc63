//! Pods in flight: allocators learn of them before their watch does.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tautline_core::{
    Index,
    model::{NodeConstraints, Pod},
    planning::{NodeVerdict, RuleOutcome},
};
use tautline_provider_client::PlanningRound;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, NodeCost, ProviderError, RuleProvider,
    testkit,
};

use crate::{cluster_index, plan, providers};

/// Every node costs 1; with pods in flight 5. Counts the pods of `counted`.
#[derive(Clone, Default)]
struct Counter {
    valid_for: Duration,
    counted: Arc<Mutex<Vec<String>>>,
    requests: Arc<Mutex<Vec<CostRequest>>>,
}

impl RuleProvider for Counter {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let mut answer = CostAnswer::default().valid_for(self.valid_for);
        for node in &request.eligible_nodes {
            answer.usable(node, 1, "");
        }
        for pod in &request.in_flight {
            let uid = &pod.workload.uid;
            match self.counted.lock().unwrap().contains(uid) {
                true => answer.push_counted(uid),
                false => answer.push_in_flight(NodeCost {
                    node: &pod.node,
                    cost: 5,
                    ..NodeCost::default()
                }),
            }
        }
        self.requests.lock().unwrap().push(request);
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::default())
    }
}

fn in_flight(name: &str) -> Pod {
    Pod {
        namespace: "ns".into(),
        name: name.into(),
        uid: name.into(),
        annotations: [("tautline.io/gpu", "x"), ("secret", "y")]
            .into_iter()
            .collect(),
        requests: [("cpu", 500)].into_iter().collect(),
        placement: Some(Box::new(NodeConstraints::default())),
        ..Pod::default()
    }
}

fn begin(index: &mut Index, name: &str, node: Option<&str>, provider: &str) {
    let now = Instant::now();
    assert!(index.begin_flight(now, in_flight(name), node, vec![provider.into()]));
}

fn costs(round: &PlanningRound) -> [Option<i64>; 2] {
    match &round.rules[0].outcome {
        RuleOutcome::Costs(costs) => [costs.get(0), costs.get(1)],
        outcome => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn allocator_answers_for_pods_in_flight() {
    for valid_for in [Duration::ZERO, Duration::from_secs(40)] {
        let provider = Counter {
            valid_for,
            ..Counter::default()
        };
        let running = testkit::start(provider.clone()).await.unwrap();
        let mut index = cluster_index(&[("127.0.0.1", running.address.port())]);
        let providers = providers();
        let none = plan(&providers, &index.snapshot()).await;
        assert_eq!(costs(&none), [Some(1), Some(1)]);
        assert!(none.rules[0].counts_pods);

        begin(&mut index, "a", Some("n2"), "ns/p");
        begin(&mut index, "open", None, "ns/p");
        begin(&mut index, "elsewhere", Some("n9"), "ns/p");
        begin(&mut index, "of-another", Some("n1"), "ns/q");
        let round = plan(&providers, &index.snapshot()).await;
        assert_eq!(costs(&round), [Some(1), Some(5)], "{valid_for:?}");
        assert!(matches!(
            round.plan.verdicts[0],
            NodeVerdict::Usable { score: 10, .. }
        ));
        let request = provider.requests.lock().unwrap().last().unwrap().clone();
        let [sent] = &request.in_flight[..] else {
            panic!("{request:?}");
        };
        assert_eq!((&*sent.pod.name, &*sent.node), ("a", "n2"));
        assert_eq!(sent.workload.request_milli("cpu"), 500);
        assert_eq!(sent.workload.annotations["tautline.io/gpu"], "x");
        assert!(sent.workload.labels.is_empty());
        // Lines that are valid for a time may be older than the pods that the provider counts.
        assert_eq!(request.eligible_nodes, ["n1", "n2"]);

        provider.counted.lock().unwrap().push("a".into());
        let round = plan(&providers, &index.snapshot()).await;
        assert_eq!(round.rules[0].counted, ["a"]);
        assert_eq!(costs(&round), [Some(1), Some(1)]);
        index.report_counted("ns/p", &round.rules[0].counted);
        plan(&providers, &index.snapshot()).await;
        let requests = provider.requests.lock().unwrap();
        let after = requests.last().unwrap();
        // A valid answer needs no call at all.
        assert!(
            after.in_flight.is_empty() || !valid_for.is_zero(),
            "{after:?}"
        );
        assert_eq!(requests.len(), if valid_for.is_zero() { 4 } else { 3 });
    }
}
