//! A provider that does everything that the contract has, with one fault or none.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tautline_proto::{
    allocator::{
        ConfirmRequest, ConfirmResponse, ReleaseRequest, ReleaseResponse, ReserveRequest,
        ReserveResponse,
        allocator_server::{Allocator, AllocatorServer},
    },
    ruleprovider::{
        EndpointCostRequest, EndpointCostResponse, EvaluateRequest, EvaluateResponse, NodeCost,
        PolicyRule,
        evaluate_response::ComplianceState,
        rule_provider_server::{RuleProvider, RuleProviderServer},
    },
};
use tautline_sdk::{
    ChangeLog, Rule,
    reservations::{Key, Reservations},
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, async_trait};
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
    VersionGoesBack,
    KnowsAnyVersion,
    ForgetsAChange,
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
    changes: ChangeLog,
    reservations: Reservations<()>,
    version: u64,
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
                changes: ChangeLog::default(),
                reservations: Reservations::new("fake"),
                version: u64::MAX / 2,
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

    fn must_confirm(&self) -> Result<(), Status> {
        match self.fault {
            Fault::ReservesAlone => Err(Status::unimplemented("not written yet")),
            _ => Ok(()),
        }
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
        let taken = state
            .reservations
            .grants_on_node(Instant::now(), node)
            .count();
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
        let mut state = self.state.lock().unwrap();
        let mut nodes = match self.fault {
            Fault::SharesState => state.last_nodes.clone(),
            _ => asked.eligible_nodes.clone(),
        };
        let mut answer = EndpointCostResponse {
            valid_for_millis: 1_000,
            version: state.changes.version(),
            ..EndpointCostResponse::default()
        };
        match self.fault {
            Fault::VersionGoesBack => {
                state.version -= 1;
                answer.version = state.version;
                answer.changed_since = asked.known_version;
            }
            Fault::KnowsAnyVersion => answer.changed_since = asked.known_version,
            _ => {
                if let Some(changed) = state.changes.since(asked.known_version) {
                    answer.changed_since = asked.known_version;
                    nodes.extend(changed.into_iter().map(str::to_owned));
                }
            }
        }
        nodes.sort();
        nodes.dedup();
        match self.fault {
            Fault::LeavesOutANode => nodes.retain(|node| node != "n2"),
            Fault::RepeatsANode => nodes.extend(nodes.first().cloned()),
            Fault::AddsANode => nodes.push("master-0".into()),
            _ => {}
        }
        let lines = nodes.iter().map(|node| self.cost(&state, node, &asked));
        answer.node_and_cost = lines.collect();
        for pod in &asked.in_flight {
            let line = self.cost(&state, &pod.node, &asked);
            answer.in_flight_nodes.push(line);
        }
        answer
    }
}

#[async_trait]
impl RuleProvider for Fake {
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

#[async_trait]
impl Allocator for Fake {
    async fn reserve(
        &self,
        request: Request<ReserveRequest>,
    ) -> Result<Response<ReserveResponse>, Status> {
        let request = request.into_inner();
        seats(request.rule.as_ref())?;
        let mut state = self.state.lock().unwrap();
        if !NODES.contains(&request.node.as_str()) || request.node == "full" {
            return Err(Status::failed_precondition("no seat is free"));
        }
        let rule = request.rule.unwrap_or_default();
        let mut key = Key {
            uid: request.uid,
            node: request.node.clone(),
            rule: Rule {
                name: rule.name,
                request: rule.request,
                limit: rule.limit,
            },
        };
        if self.fault == Fault::ReserveIsNotIdempotent {
            key.uid += &self.questions.fetch_add(1, Ordering::SeqCst).to_string();
        }
        let uid = key.uid.clone();
        let hold = match self.fault {
            Fault::HoldNeverEnds => Duration::from_secs(3_600),
            _ => Duration::from_millis(request.hold_millis.unsigned_abs()),
        };
        let now = Instant::now();
        let grant = |_: &Reservations<()>| Ok::<_, Status>(());
        let reserved = state.reservations.reserve(now, key, hold, grant)?;
        if self.fault != Fault::ForgetsAChange {
            state.changes.record_node(&request.node);
        }
        Ok(Response::new(ReserveResponse {
            id: match self.fault {
                Fault::ReusesIds => format!("{}/{uid}", request.node),
                _ => reserved.id,
            },
            annotations: [("example.com/seat".to_owned(), request.node)].into(),
            expires: None,
        }))
    }

    async fn confirm(
        &self,
        request: Request<ConfirmRequest>,
    ) -> Result<Response<ConfirmResponse>, Status> {
        self.must_confirm()?;
        let id = request.into_inner().id;
        let mut state = self.state.lock().unwrap();
        match state.reservations.confirm(Instant::now(), &id) {
            Err(error) if self.fault != Fault::ConfirmsAnything => {
                Err(Status::not_found(error.to_string()))
            }
            _ => Ok(Response::new(ConfirmResponse {})),
        }
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        self.must_confirm()?;
        let id = request.into_inner().id;
        let mut state = self.state.lock().unwrap();
        if let Some(node) = state.reservations.release(Instant::now(), &id) {
            state.changes.record_node(&node);
        }
        Ok(Response::new(ReleaseResponse {}))
    }
}
