//! An allocator with reservations and a provider over real gRPC: errors and health.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use tautline_proto::{
    allocator::{
        ConfirmRequest, ReleaseRequest, ReserveRequest, allocator_client::AllocatorClient,
    },
    ruleprovider::{
        EndpointCostRequest, EvaluateRequest, rule_provider_client::RuleProviderClient,
    },
};
use tautline_sdk::{
    Allocator, AllocatorError, CostAnswer, CostRequest, Evaluation, EvaluationRequest,
    ProviderError, ReservationRef, ReservationRequest, Reserved, RuleProvider, Server,
    reservations::{Key, Reservations},
    testkit,
};
use tautline_serve::tasks::Tasks;
use tonic::{Code, Response, Status, transport::Channel};

struct Costs;

impl RuleProvider for Costs {
    async fn endpoint_cost(&self, _: CostRequest) -> Result<CostAnswer, ProviderError> {
        Ok(CostAnswer::default())
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::compliant(""))
    }
}

/// One device per node.
struct Devices(Mutex<Reservations<String>>);

impl Devices {
    fn book(&self) -> std::sync::MutexGuard<'_, Reservations<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Allocator for Devices {
    async fn reserve(&self, request: ReservationRequest) -> Result<Reserved, AllocatorError> {
        let (now, node) = (Instant::now(), request.node.clone());
        let key = Key {
            uid: request.uid,
            node: request.node,
            rule: request.rule,
        };
        let granted = self.book().reserve(now, key, request.hold, |book| {
            match book.grants_on_node(now, &node).next() {
                None => Ok(format!("dev-0@{node}")),
                Some((other, _)) => {
                    let what = format!("the device of {node} is held for {}", other.uid);
                    Err(AllocatorError::Exhausted(what))
                }
            }
        })?;
        Ok(Reserved {
            id: granted.id,
            annotations: [("tautline.io/device".to_owned(), granted.grant)].into(),
            expires: granted.until.map(|u| SystemTime::now() + (u - now)),
        })
    }

    async fn confirm(&self, request: ReservationRef) -> Result<(), AllocatorError> {
        self.book()
            .confirm(Instant::now(), &request.id)
            .map_err(|e| AllocatorError::Expired(e.to_string()))
    }

    async fn release(&self, request: ReservationRef) -> Result<(), AllocatorError> {
        self.book().release(Instant::now(), &request.id);
        Ok(())
    }
}

fn reservation(uid: &str, node: &str) -> ReserveRequest {
    ReserveRequest {
        uid: uid.into(),
        node: node.into(),
        hold_millis: 5000,
        ..ReserveRequest::default()
    }
}

#[tokio::test]
async fn allocator_reserves_confirms_and_rejects() {
    let running = testkit::start_with_allocator(Costs, Devices(Mutex::new(Reservations::new("t"))))
        .await
        .unwrap();
    let mut allocator = running.allocator.clone();
    let mut reserve = async |request| allocator.reserve(request).await.map(Response::into_inner);
    let first = reserve(reservation("u1", "n1")).await.unwrap();
    assert_eq!(first.annotations["tautline.io/device"], "dev-0@n1");
    let left = SystemTime::try_from(first.expires.unwrap()).unwrap();
    assert!(left > SystemTime::now() && left < SystemTime::now() + Duration::from_secs(6));
    let again = reserve(reservation("u1", "n1")).await.unwrap();
    assert_eq!(
        (&again.id, &again.annotations),
        (&first.id, &first.annotations)
    );

    let refused = reserve(reservation("u2", "n1")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.message(), "the device of n1 is held for u1");
    let unnamed = reserve(reservation("", "n1")).await.unwrap_err();
    assert_eq!(unnamed.code(), Code::InvalidArgument);
    assert!(unnamed.message().contains("uid: empty"), "{unnamed}");

    let mut allocator = running.allocator.clone();
    let id = first.id;
    allocator.confirm(ConfirmRequest { id }).await.unwrap();
    let id = "t-99".to_owned();
    let unknown = allocator.confirm(ConfirmRequest { id }).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let other = reserve(reservation("u2", "n2")).await.unwrap();
    for _ in 0..2 {
        let id = other.id.clone();
        allocator.release(ReleaseRequest { id }).await.unwrap();
    }
    reserve(reservation("u3", "n2")).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn health_of_both_services() {
    let running = testkit::start_with_allocator(Costs, Devices(Mutex::new(Reservations::new("t"))))
        .await
        .unwrap();
    let channel = Channel::from_shared(format!("http://{}", running.address))
        .unwrap()
        .connect_lazy();
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
    let deadline = Instant::now() + Duration::from_secs(10);
    for service in [
        "",
        "ruleprovider.RuleProvider",
        "tautline.allocator.v1.Allocator",
    ] {
        loop {
            let check = tonic_health::pb::HealthCheckRequest {
                service: service.into(),
            };
            let status = health.check(check).await.map(|a| a.into_inner().status());
            if status.as_ref().is_ok_and(|s| {
                *s == tonic_health::pb::health_check_response::ServingStatus::Serving
            }) {
                break;
            }
            assert!(Instant::now() < deadline, "{service:?} is {status:?}");
            tokio::task::yield_now().await;
        }
    }
    running.stop().await;
}

async fn all_questions(channel: Channel) -> Vec<Result<(), Status>> {
    let mut rules = RuleProviderClient::new(channel.clone());
    let mut devices = AllocatorClient::new(channel);
    vec![
        rules
            .endpoint_cost(EndpointCostRequest::default())
            .await
            .map(drop),
        rules.evaluate(EvaluateRequest::default()).await.map(drop),
        devices.reserve(reservation("u1", "n1")).await.map(drop),
        devices
            .confirm(ConfirmRequest { id: "t-1".into() })
            .await
            .map(drop),
        devices
            .release(ReleaseRequest { id: "t-1".into() })
            .await
            .map(drop),
    ]
}

#[tokio::test]
async fn calls_are_rejected_until_ready() {
    let server = Server::bind(testkit::loopback()).await.unwrap();
    let (address, readiness) = (server.address(), server.readiness.clone());
    readiness.expect("nodes");
    readiness.expect("pods");
    let mut tasks = Tasks::default();
    let devices = Devices(Mutex::new(Reservations::new("t")));
    server
        .spawn_with_allocator(Costs.into(), devices.into(), &mut tasks)
        .unwrap();
    let stop = tasks.stop_token();
    let done = tokio::spawn(tasks.run(std::future::pending()));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let channel = channel.connect().await.unwrap();

    for (ready, text) in [
        ("nodes", "not ready: waiting for nodes, pods"),
        ("pods", "not ready: waiting for pods"),
    ] {
        for answer in all_questions(channel.clone()).await {
            let refused = answer.unwrap_err();
            let status = (refused.code(), refused.message());
            assert_eq!(status, (Code::Unavailable, text));
        }
        readiness.done(ready);
    }
    let codes = all_questions(channel).await;
    let codes: Vec<_> = codes
        .iter()
        .map(|a| a.as_ref().err().map(Status::code))
        .collect();
    assert_eq!(codes, [None, None, None, Some(Code::NotFound), None]);
    stop.cancel();
    done.await.unwrap().unwrap();
}
