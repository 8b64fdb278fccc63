//! A provider that does everything that the contract has, with one fault or none.

mod allocator;
mod stream;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tautline_proto::{
    allocator::allocator_server::AllocatorServer,
    ruleprovider::{
        CostUpdate, CostWatch, EndpointCostRequest, EndpointCostResponse, EvaluateRequest,
        EvaluateResponse, NodeCost, PolicyRule,
        evaluate_response::ComplianceState,
        rule_provider_server::{RuleProvider, RuleProviderServer},
    },
};
use tautline_sdk::reservations::Reservations;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, async_trait};
use tonic_health::ServingStatus;

pub(crate) const NODES: [&str; 4] = ["n1", "n2", "n3", "full"];
pub(crate) const RULE: &str = "seats";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    LeavesOutANode,
    RepeatsANode,
    AddsANode,
    FailsForUnknownNodes,
    FiguresInCodes,
    NanCost,
    NeedsPeers,
    NeedsAWorkload,
    CountsQuestions,
    SharesState,
    AcceptsBadRules,
    CallsBadRulesInternal,
    Slow,
    IgnoresCancellation,
    SmallMessages,
    RanksNodes,
    KnowsPods,
    RepeatsNodesInFlight,
    NoStream,
    StreamLacksANode,
    StreamRepeatsLines,
    StreamHasUnknownIndexes,
    StreamHasOtherCosts,
    StreamFails,
    ThroughIsAhead,
    ThroughGoesBack,
    SilentWithoutChanges,
    AddedNodesAreLate,
    KeepsRemovedNodes,
    AddsBeforeItRemoves,
    KeepsClosedQuestions,
    EndsForBadRules,
    PlacedPodsAreLate,
    ForgetsEndedPods,
    EvaluatePanics,
    UnknownState,
    UnplacedIsAViolation,
    ReserveIsNotIdempotent,
    ReusesIds,
    ConfirmsAnything,
    HoldNeverEnds,
    NeverServing,
    EvaluateFails,
    CompliesAlways,
    EndsWithoutPeers,
    ReservesAlone,
}

struct State {
    reservations: Reservations<()>,
    /// The nodes of placed pods, by UID.
    placed: BTreeMap<String, String>,
    last_nodes: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct Fake {
    fault: Fault,
    state: Arc<Mutex<State>>,
    questions: Arc<AtomicU64>,
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Of the process.
    end: Arc<tokio::sync::Notify>,
}

fn seats(rule: Option<&PolicyRule>) -> Result<u64, Status> {
    let text = rule.map_or("", |rule| rule.request.as_str());
    let bad = |_| Status::invalid_argument(format!("request is {text:?}; write a number of seats"));
    match text {
        "" => Ok(1),
        text => text.parse().map_err(bad),
    }
}

impl Fake {
    pub(crate) async fn start(fault: Fault) -> SocketAddr {
        let fake = Self {
            fault,
            state: Arc::new(Mutex::new(State {
                reservations: Reservations::new("fake"),
                placed: BTreeMap::new(),
                last_nodes: Vec::new(),
            })),
            questions: Arc::default(),
            turn: Arc::default(),
            end: Arc::default(),
        };
        let (reporter, health) = tonic_health::server::health_reporter();
        let status = match fault {
            Fault::NeverServing => ServingStatus::NotServing,
            _ => ServingStatus::Serving,
        };
        reporter.set_service_status("", status).await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(tautline_proto::FILE_DESCRIPTOR_SET)
            .build_v1()
            .unwrap();
        let most = match fault {
            Fault::SmallMessages => 64 << 10,
            _ => 16 << 20,
        };
        let end = fake.end.clone();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let provider = RuleProviderServer::new(fake.clone()).max_decoding_message_size(most);
        let serving = tonic::transport::Server::builder()
            .add_service(provider)
            .add_service(AllocatorServer::new(fake))
            .add_service(health)
            .add_service(reflection)
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(async move {
            tokio::select! { _ = serving => {}, () = end.notified() => {} }
        });
        address
    }

    fn cost(&self, state: &State, node: &str, asked: &EndpointCostRequest) -> NodeCost {
        let mut line = NodeCost {
            node: node.into(),
            ..NodeCost::default()
        };
        let Some(at) = NODES.iter().position(|known| *known == node) else {
            line.cost = -1;
            line.reason = "UnknownNode".into();
            return line;
        };
        let grants = state.reservations.grants_on_node(Instant::now(), node);
        let in_flight = asked.in_flight.iter().map(|pod| &pod.node);
        let pods = in_flight.chain(state.placed.values());
        let taken = grants.count() + pods.filter(|on| *on == node).count();
        line.cost = i64::try_from(10 * at + taken).unwrap();
        line.tie_break = 1.min(line.cost);
        if node == "full" {
            line.cost = -1;
            line.tie_break = 0;
            line.freeable = true;
            line.reason = match self.fault {
                Fault::FiguresInCodes => "only 0 of 4 seats".into(),
                _ => "Full".into(),
            };
        } else {
            match self.fault {
                // As Go converts NaN.
                Fault::NanCost => line.cost = i64::MIN,
                Fault::CountsQuestions => {
                    line.cost += i64::try_from(self.questions.load(Ordering::SeqCst)).unwrap();
                }
                Fault::RanksNodes => line.cost += asked.eligible_nodes.len() as i64,
                Fault::KnowsPods => {
                    let name = asked.source.as_ref().map_or("", |source| &source.name);
                    line.cost += name.len() as i64;
                }
                _ => {}
            }
        }
        line
    }

    async fn answer(&self, asked: EndpointCostRequest) -> Result<EndpointCostResponse, Status> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        match self.fault {
            Fault::Slow => tokio::time::sleep(Duration::from_millis(100)).await,
            Fault::IgnoresCancellation => {
                let _turn = self.turn.lock().await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Fault::SharesState => {
                let nodes = asked.eligible_nodes.clone();
                self.state.lock().unwrap().last_nodes = nodes;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            _ => {}
        }
        match (self.fault, seats(asked.rule.as_ref())) {
            (Fault::AcceptsBadRules, Err(_)) | (_, Ok(_)) => {}
            (Fault::CallsBadRulesInternal, Err(error)) => {
                return Err(Status::internal(error.message()));
            }
            (_, Err(error)) => return Err(error),
        }
        let is_known = |node: &String| NODES.contains(&node.as_str());
        match self.fault {
            Fault::NeedsPeers if asked.peer_nodes.is_empty() => {
                return Err(Status::failed_precondition("no peers"));
            }
            Fault::EndsWithoutPeers if asked.peer_nodes.is_empty() => {
                self.end.notify_one();
                panic!("index out of bounds");
            }
            Fault::NeedsAWorkload if asked.workload.is_none() => {
                return Err(Status::invalid_argument("no workload"));
            }
            Fault::FailsForUnknownNodes if !asked.eligible_nodes.iter().any(is_known) => {}
            Fault::FailsForUnknownNodes if !asked.eligible_nodes.iter().all(is_known) => {
                return Err(Status::not_found("no such node"));
            }
            _ => {}
        }
        Ok(self.lines(asked))
    }

    fn lines(&self, asked: EndpointCostRequest) -> EndpointCostResponse {
        let state = self.state.lock().unwrap();
        let mut nodes = match self.fault {
            Fault::SharesState => state.last_nodes.clone(),
            _ => asked.eligible_nodes.clone(),
        };
        match self.fault {
            Fault::LeavesOutANode => nodes.retain(|node| node != "n2"),
            Fault::RepeatsANode => nodes.extend(nodes.first().cloned()),
            Fault::AddsANode => nodes.push("master-0".into()),
            Fault::RepeatsNodesInFlight => {
                nodes.extend(asked.in_flight.iter().map(|pod| pod.node.clone()));
            }
            _ => {}
        }
        let lines = nodes.iter().map(|node| self.cost(&state, node, &asked));
        EndpointCostResponse {
            node_and_cost: lines.collect(),
            ..EndpointCostResponse::default()
        }
    }
}

#[async_trait]
impl RuleProvider for Fake {
    type WatchCostsStream = ReceiverStream<Result<CostUpdate, Status>>;

    async fn watch_costs(
        &self,
        request: Request<Streaming<CostWatch>>,
    ) -> Result<Response<Self::WatchCostsStream>, Status> {
        match self.fault {
            Fault::NoStream => Err(Status::unimplemented("")),
            _ => Ok(Response::new(stream::start(self, request.into_inner()))),
        }
    }

    async fn endpoint_cost(
        &self,
        request: Request<EndpointCostRequest>,
    ) -> Result<Response<EndpointCostResponse>, Status> {
        let (fake, asked) = (self.clone(), request.into_inner());
        let answer = match self.fault {
            // Its own task goes on after the caller has gone.
            Fault::IgnoresCancellation => {
                let work = tokio::spawn(async move { fake.answer(asked).await });
                work.await.map_err(|e| Status::internal(e.to_string()))?
            }
            _ => fake.answer(asked).await,
        };
        answer.map(Response::new)
    }

    async fn evaluate(
        &self,
        request: Request<EvaluateRequest>,
    ) -> Result<Response<EvaluateResponse>, Status> {
        let request = request.into_inner();
        match self.fault {
            Fault::EvaluateFails => return Err(Status::internal("no column")),
            Fault::CompliesAlways => {
                return Ok(Response::new(EvaluateResponse {
                    compliance: ComplianceState::Compliant as i32,
                    reason: "checked only when pods are placed".into(),
                }));
            }
            _ => {}
        }
        seats(request.rule.as_ref())?;
        let nodes = request
            .target_nodes
            .values()
            .filter(|node| !node.is_empty());
        let unknown = nodes.clone().any(|node| !NODES.contains(&node.as_str()));
        if self.fault == Fault::EvaluatePanics && unknown {
            panic!("no entry found for key");
        }
        let compliance = match nodes.count() {
            0 if self.fault == Fault::UnplacedIsAViolation => ComplianceState::Violation,
            0 => ComplianceState::Pending,
            _ if unknown => ComplianceState::Error,
            _ => ComplianceState::Compliant,
        };
        Ok(Response::new(EvaluateResponse {
            compliance: match (self.fault, compliance) {
                (Fault::UnknownState, ComplianceState::Compliant) => 7,
                _ => compliance as i32,
            },
            reason: "seats of the nodes".into(),
        }))
    }
}
