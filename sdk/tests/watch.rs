//! WatchCosts over real gRPC: first costs, changes, placed pods, failures and bounds.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tautline_proto::ruleprovider::{
    CostUpdate, CostWatch, EndpointCostRequest, InFlightPod, IndexedNode, OpenedQuestion,
    QuestionFailure, Workload, rule_provider_client::RuleProviderClient,
};
use tautline_sdk::{
    CostAnswer, CostChanges, CostRequest, ProviderError, RuleProvider,
    testkit::{self, TestServer},
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status, Streaming};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct Sample(Arc<State>);

#[derive(Default)]
struct State {
    costs: Mutex<BTreeMap<String, i64>>,
    fault: Mutex<Option<&'static str>>,
    pods: Mutex<Vec<String>>,
    changes: CostChanges,
}

impl Sample {
    fn set(&self, node: &str, cost: i64) {
        self.0.costs.lock().unwrap().insert(node.to_owned(), cost);
        self.0.changes.changed(node);
    }

    fn fail(&self, fault: Option<&'static str>) {
        *self.0.fault.lock().unwrap() = fault;
        self.0.changes.changed_all();
    }

    fn pods(&self) -> Vec<String> {
        self.0.pods.lock().unwrap().clone()
    }
}

impl RuleProvider for Sample {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let fault = *self.0.fault.lock().unwrap();
        match fault {
            Some("panic") => panic!("no luck"),
            Some(text) => return Err(ProviderError::NotReady(text.to_owned())),
            None => {}
        }
        let costs = self.0.costs.lock().unwrap();
        let known = |node: String| costs.get(&node).map(|cost| (node, *cost));
        Ok(request
            .eligible_nodes
            .into_iter()
            .filter_map(known)
            .collect())
    }

    fn changes(&self) -> Option<&CostChanges> {
        Some(&self.0.changes)
    }

    fn placed(&self, pod: tautline_sdk::InFlightPod) {
        self.0.pods.lock().unwrap().push(pod.workload.uid);
        self.0.changes.changed(&pod.node);
    }

    fn ended(&self, uid: &str) {
        self.0.pods.lock().unwrap().retain(|pod| pod != uid);
    }
}

/// The caller's side.
struct Caller {
    out: UnboundedSender<CostWatch>,
    updates: Streaming<CostUpdate>,
    sequence: u64,
    through: u64,
    /// By question and index: the cost.
    costs: BTreeMap<(u64, u32), i64>,
    failures: Vec<QuestionFailure>,
}

impl Caller {
    async fn connect(server: &TestServer) -> Result<Self, Status> {
        let address = format!("http://{}", server.address);
        let mut client = RuleProviderClient::connect(address).await.unwrap();
        let (out, messages) = unbounded_channel();
        let updates = client
            .watch_costs(UnboundedReceiverStream::new(messages))
            .await?;
        Ok(Self {
            out,
            updates: updates.into_inner(),
            sequence: 0,
            through: 0,
            costs: BTreeMap::new(),
            failures: Vec::new(),
        })
    }

    fn send(&mut self, message: CostWatch) {
        self.sequence += 1;
        let sequence = self.sequence;
        _ = self.out.send(CostWatch {
            sequence,
            ..message
        });
    }

    /// Reads until a condition holds; the status at the end of the stream.
    async fn until(&mut self, holds: impl Fn(&Self) -> bool) -> Result<(), Status> {
        let begun = Instant::now();
        while !holds(self) {
            assert!(
                begun.elapsed() < PATIENCE,
                "{:?} {:?}",
                self.costs,
                self.failures
            );
            let Ok(next) = tokio::time::timeout(PATIENCE, self.updates.message()).await else {
                continue;
            };
            let Some(update) = next? else {
                return Err(Status::ok("the end"));
            };
            for costs in update.costs {
                let lines = costs.lines.into_iter();
                self.costs
                    .extend(lines.map(|line| ((costs.question, line.index), line.cost)));
            }
            self.failures.extend(update.failures);
            self.through = self.through.max(update.through);
        }
        Ok(())
    }

    async fn until_through(&mut self) {
        let sequence = self.sequence;
        self.until(|caller| caller.through >= sequence)
            .await
            .unwrap();
    }

    fn of(&self, question: u64) -> Vec<(u32, i64)> {
        let all = self.costs.iter().filter(|((of, _), _)| *of == question);
        all.map(|((_, index), cost)| (*index, *cost)).collect()
    }
}

fn nodes(nodes: &[(u32, &str)]) -> CostWatch {
    CostWatch {
        added_nodes: nodes
            .iter()
            .map(|(index, name)| IndexedNode {
                index: *index,
                name: (*name).to_owned(),
            })
            .collect(),
        ..CostWatch::default()
    }
}

fn open(id: u64) -> CostWatch {
    CostWatch {
        opened_questions: vec![OpenedQuestion {
            id,
            question: Some(EndpointCostRequest::default()),
        }],
        ..CostWatch::default()
    }
}

fn placed(uid: &str) -> InFlightPod {
    InFlightPod {
        node: "a".into(),
        workload: Some(Workload {
            uid: uid.into(),
            ..Workload::default()
        }),
        ..InFlightPod::default()
    }
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn costs_come_at_first_and_when_they_change() {
    let sample = Sample::default();
    sample.set("a", 1);
    let server = testkit::start(sample.clone()).await.unwrap();
    let mut caller = Caller::connect(&server).await.unwrap();
    caller.send(nodes(&[(3, "a"), (5, "b")]));
    caller.send(open(7));
    caller.until_through().await;
    assert_eq!(caller.of(7), [(3, 1), (5, -1)], "b has no cost");
    caller.costs.clear();
    sample.set("a", 1);
    sample.set("b", 2);
    caller
        .until(|c| c.costs.contains_key(&(7, 5)))
        .await
        .unwrap();
    assert_eq!(caller.of(7), [(5, 2)], "only what differs");
    // An index may come again for another node.
    sample.set("c", 4);
    caller.send(CostWatch {
        removed_nodes: vec![5],
        ..nodes(&[(5, "c"), (6, "d")])
    });
    caller.until_through().await;
    assert_eq!(caller.of(7), [(5, 4), (6, -1)]);
    sample.fail(Some("no figures yet"));
    caller.until(|c| !c.failures.is_empty()).await.unwrap();
    let failure = caller.failures.remove(0);
    assert_eq!(Code::from(failure.code), Code::FailedPrecondition);
    assert!(failure.message.contains("no figures yet"), "{failure:?}");
    sample.fail(Some("panic"));
    let panicked = |c: &Caller| c.failures.iter().any(|f| f.message.contains("no luck"));
    caller.until(panicked).await.unwrap();
    // All lines come again, without a change: failures are tried again.
    caller.costs.clear();
    *sample.0.fault.lock().unwrap() = None;
    caller.until(|c| c.costs.len() == 3).await.unwrap();
    assert_eq!(caller.of(7), [(3, 1), (5, 4), (6, -1)]);
    caller.send(CostWatch {
        closed_questions: vec![7],
        ..CostWatch::default()
    });
    caller.until_through().await;
    caller.costs.clear();
    sample.set("a", 9);
    caller.send(open(8));
    caller.until_through().await;
    assert_eq!((caller.of(7), caller.of(8).len()), (Vec::new(), 3));
    let ended = tokio::spawn(server.stop());
    let end = caller.until(|_| false).await.unwrap_err();
    assert_eq!(end.code(), Code::Unavailable, "{end:?}");
    ended.await.unwrap();
}

#[tokio::test]
async fn placed_pods_count_until_they_end_or_their_stream_has_gone() {
    let sample = Sample::default();
    let server = testkit::start(sample.clone()).await.unwrap();
    let mut first = Caller::connect(&server).await.unwrap();
    first.send(CostWatch {
        placed_pods: ["u", "v", "w"].map(placed).to_vec(),
        ..CostWatch::default()
    });
    first.send(CostWatch {
        ended_pods: vec!["v".to_owned(), "unknown".to_owned()],
        ..CostWatch::default()
    });
    first.until_through().await;
    assert_eq!(sample.pods(), ["u", "w"]);
    // Another caller, as one that takes over, has placed one of them, too.
    let mut second = Caller::connect(&server).await.unwrap();
    second.send(CostWatch {
        placed_pods: vec![placed("w")],
        ..CostWatch::default()
    });
    second.until_through().await;
    drop(first);
    eventually("u ends", || !sample.pods().contains(&"u".to_owned())).await;
    assert!(
        sample.pods().contains(&"w".to_owned()),
        "{:?}",
        sample.pods()
    );
    drop(second);
    eventually("w ends", || sample.pods().is_empty()).await;
}

#[tokio::test]
async fn streams_are_bounded() {
    async fn plain(_: CostRequest) -> Result<CostAnswer, ProviderError> {
        Ok(CostAnswer::default())
    }
    let server = testkit::start(plain).await.unwrap();
    let refused = Caller::connect(&server).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unimplemented);

    let server = testkit::start(Sample::default()).await.unwrap();
    let mut callers = Vec::new();
    let refused = loop {
        match Caller::connect(&server).await {
            Ok(caller) => callers.push(caller),
            Err(status) => break status,
        }
    };
    assert_eq!(
        (refused.code(), callers.len()),
        (Code::ResourceExhausted, 8)
    );
    callers.truncate(3);
    let [unordered, named, asking] = &mut callers[..] else {
        panic!()
    };
    unordered.send(open(1));
    unordered.sequence = 0;
    unordered.send(open(2));
    let end = unordered.until(|_| false).await.unwrap_err();
    assert_eq!(end.code(), Code::InvalidArgument, "{end:?}");
    named.send(nodes(&[(1, &"x".repeat(300))]));
    let end = named.until(|_| false).await.unwrap_err();
    assert_eq!(end.code(), Code::ResourceExhausted, "{end:?}");
    asking.send(CostWatch {
        opened_questions: (0..600).flat_map(|id| open(id).opened_questions).collect(),
        ..CostWatch::default()
    });
    asking.until_through().await;
    assert_eq!(asking.failures.len(), 600 - 512);
    let begun = Instant::now();
    // A stream that has ended makes room.
    while let Err(status) = Caller::connect(&server).await {
        assert!(begun.elapsed() < PATIENCE, "{status:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
