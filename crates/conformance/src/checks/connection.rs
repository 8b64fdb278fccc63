//! Checks of readiness, health and reflection.

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
    check::{Answered, Check, Verdict, checks, fail, skip},
    failure::{CallFailure, code_name},
    questions::PLAIN,
    session::{NOT_READY_PAUSE, Session},
};

checks! { "connection":
    "ready" ready
        "EndpointCost is answered; until the data is loaded, with UNAVAILABLE or \
         FAILED_PRECONDITION",
        "answer the question; if the rule needs a request or a limit, give a good one with \
         --request and --limit";
    "health" health
        "if grpc.health.v1 is served, Check of \"\" becomes SERVING",
        "set the status of \"\" to SERVING once the data is loaded: the kubelet's probe asks for \
         it";
    "reflection" reflection
        "if grpc.reflection.v1 is served, it lists ruleprovider.RuleProvider",
        "register the descriptors of ruleprovider.proto with the reflection service";
}

pub(crate) const READY: &Check = &CHECKS[0];

async fn ready(session: &Session) -> Verdict {
    let ask = || session.ask(session.questions.plain());
    let starts = &[Code::Unavailable, Code::FailedPrecondition];
    let answer = session.retry(ask, starts).await;
    answer.answered(PLAIN.0).map(drop)
}

async fn health(session: &Session) -> Verdict {
    let limit = session.config.start_within;
    let end = Instant::now() + limit;
    loop {
        let mut client = HealthClient::new(session.channel.clone());
        let request = session.timed(HealthCheckRequest::default());
        let seen = match session.call(client.check(request)).await {
            Ok(answer) if answer.status() == ServingStatus::Serving => return Ok(()),
            Ok(answer) => answer.status().as_str_name().to_owned(),
            Err(failure) if failure.is(&[Code::Unimplemented]) => {
                return skip("not served; the readiness probe must be of another type than grpc");
            }
            Err(failure @ (CallFailure::Broken(_) | CallFailure::NotAsked)) => {
                return Err(failure).answered("Check of \"\"");
            }
            Err(failure) => failure.to_string(),
        };
        if Instant::now() >= end {
            return fail(format!("seen {seen} for {limit:?}; expected SERVING"));
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
    if names.contains(&SERVICE_NAME) {
        return Ok(());
    }
    let seen = names.join(", ");
    fail(format!("seen {seen}; expected {SERVICE_NAME}"))
}
