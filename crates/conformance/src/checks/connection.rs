//! Readiness, health and reflection.

use tautline_proto::ruleprovider::rule_provider_server::SERVICE_NAME;
use tokio::time::Instant;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::{
    check::{Check, Finding, Verdict, fail, skip},
    failure::{CallFailure, code_name},
    session::{NOT_READY_PAUSE, Session},
};

pub(crate) const READY: Check = Check {
    group: "connection",
    name: "ready",
    requires: "EndpointCost is answered; until the data is loaded, with UNAVAILABLE or \
               FAILED_PRECONDITION",
    fix: "answer the question; if the rule needs a request or a limit, give a good one with \
          --request and --limit",
    needs_answers: false,
    run: |session| Box::pin(ready(session)),
};

pub(crate) const CHECKS: &[Check] = &[
    READY,
    Check {
        group: "connection",
        name: "health",
        requires: "if grpc.health.v1 is served, Check of \"\" becomes SERVING",
        fix: "set the status of \"\" to SERVING once the data is loaded: the kubelet's probe asks \
              for it",
        needs_answers: false,
        run: |session| Box::pin(health(session)),
    },
    Check {
        group: "connection",
        name: "reflection",
        requires: "if grpc.reflection.v1 is served, it lists ruleprovider.RuleProvider",
        fix: "register the descriptors of ruleprovider.proto with the reflection service",
        needs_answers: false,
        run: |session| Box::pin(reflection(session)),
    },
];

async fn ready(session: &Session) -> Verdict {
    let end = Instant::now() + session.config.start_within;
    loop {
        let answer = session.endpoint_cost(session.questions.plain()).await;
        let Err(failure) = answer else {
            return Ok(());
        };
        let may_start = matches!(
            failure.code(),
            Some(Code::Unavailable | Code::FailedPrecondition)
        );
        if !may_start || Instant::now() >= end {
            return Err(Finding::unanswered("a plain question", &failure));
        }
        tokio::time::sleep(NOT_READY_PAUSE).await;
    }
}

async fn health(session: &Session) -> Verdict {
    let end = Instant::now() + session.config.start_within;
    loop {
        let mut client = HealthClient::new(session.channel.clone());
        let request = HealthCheckRequest::default();
        let call = |request| async move { client.check(request).await };
        let seen = match session.call(session.config.patience, request, call).await {
            Err(failure) if failure.code() == Some(Code::Unimplemented) => {
                return skip("not served; the readiness probe must be of another type than grpc");
            }
            Err(failure @ (CallFailure::Broken(_) | CallFailure::NotAsked)) => {
                return Err(Finding::unanswered("Check of \"\"", &failure));
            }
            Err(failure) => failure.to_string(),
            Ok(answer) if answer.status() == ServingStatus::Serving => return Ok(()),
            Ok(answer) => answer.status().as_str_name().to_owned(),
        };
        if Instant::now() >= end {
            return fail(format!(
                "seen {seen} for {:?}; expected SERVING",
                session.config.start_within
            ));
        }
        tokio::time::sleep(NOT_READY_PAUSE).await;
    }
}

async fn reflection(session: &Session) -> Verdict {
    let patience = session.config.patience;
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(session.channel.clone());
    let answer = tokio::time::timeout(patience, async move {
        let requests = futures::stream::iter([request]);
        let answers = client.server_reflection_info(requests).await?;
        answers.into_inner().message().await
    });
    let answer = match answer.await {
        Err(_) => return fail(CallFailure::NoAnswer(patience).to_string()),
        Ok(Err(status)) if status.code() == Code::Unimplemented => {
            return skip("not served; tools such as grpcurl then need the proto file");
        }
        Ok(Err(status)) => return fail(format!("seen {}", code_name(status.code()))),
        Ok(Ok(answer)) => answer.and_then(|answer| answer.message_response),
    };
    let Some(MessageResponse::ListServicesResponse(list)) = answer else {
        return fail("seen no list of services");
    };
    let names: Vec<&str> = list.service.iter().map(|s| s.name.as_str()).collect();
    match names.contains(&SERVICE_NAME) {
        true => Ok(()),
        false => fail(format!(
            "seen {}; expected {SERVICE_NAME}",
            names.join(", ")
        )),
    }
}
