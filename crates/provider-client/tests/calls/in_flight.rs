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
use tautline_sdk::{CostAnswer, CostRequest, ProviderError, RuleProvider, testkit};

use crate::{cluster_index, plan, providers};

/// Every node costs 1, with pods in flight 5.
#[derive(Clone, Default)]
struct Counter {
    requests: Arc<Mutex<Vec<CostRequest>>>,
}

impl RuleProvider for Counter {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let taken = |node: &String| request.in_flight.iter().any(|pod| pod.node == *node);
        let nodes = request.eligible_nodes.iter();
        let answer = nodes.map(|node| (node, if taken(node) { 5 } else { 1 }));
        let answer = answer.collect();
        self.requests.lock().unwrap().push(request);
        Ok(answer)
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
    let provider = Counter::default();
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
    let snapshot = index.snapshot();
    providers.follow_flights(&snapshot, || index.take_flight_events());
    let round = plan(&providers, &snapshot).await;
    assert_eq!(costs(&round), [Some(1), Some(5)]);
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

    // Its attempt has failed.
    index.begin_attempt(Instant::now(), Duration::ZERO, "ns/a");
    let snapshot = index.snapshot();
    providers.follow_flights(&snapshot, || index.take_flight_events());
    let round = plan(&providers, &snapshot).await;
    assert_eq!(costs(&round), [Some(1), Some(1)]);
}
